// The kernels of a decode step and of a prompt's chunk, each by itself on weights that lie in a
// cache: what arithmetic allows, where tests/perf/compare shows what memory does. items_per_second
// are multiplications with a weight, or elements.
#include <benchmark/benchmark.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "worker/kernels/linear.h"
#include "worker/kernels/linear_int4.h"
#include "worker/kernels/linear_panels.h"
#include "worker/kernels/paged_attention.h"
#include "worker/kernels/quantize.h"
#include "worker/kernels/row_ops.h"
#include "worker/kernels/thread_pool.h"

namespace dex::kernels {
namespace {

// A slice of SmolLM2's gate projection.
constexpr int64_t kOutputs = 192, kColumns = 576;

std::vector<float> numbers(int64_t count) {
  std::mt19937 generator(1);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out) v = static_cast<float>(generator() % 2001) / 1000.0F - 1.0F;
  return out;
}

// One weight in every order, and x [rows, kColumns].
struct Product {
  explicit Product(int64_t rows_in)
      : rows(rows_in), x(numbers(rows * kColumns)), y(static_cast<size_t>(rows * kOutputs)) {
    const std::vector<float> w = numbers(kOutputs * kColumns);
    for (const float v : w)
      bf16.push_back(static_cast<uint16_t>(__builtin_bit_cast(uint32_t, v) >> 16));
    int8.resize(w.size());
    scales.resize(kOutputs);
    quantize_rows(w.data(), kOutputs, kColumns, int8.data(), scales.data());
    int4.resize(static_cast<size_t>(int4_blocks(kOutputs, kColumns)));
    quantize_int4(w.data(), kOutputs, kColumns, int4.data());
    scratch.resize(
        static_cast<size_t>(std::max(linear_scratch(kColumns), panel_scratch(kColumns))));
  }
  [[nodiscard]] WeightView in_rows(Number number) const {
    const void* data =
        number == Number::kBf16 ? static_cast<const void*>(bf16.data()) : int8.data();
    return {data, number, kOutputs, kColumns, scales.data()};
  }
  WeightView in_panels(Number number) {
    WeightView out = in_rows(number);
    panels.resize(static_cast<size_t>(panel_elements(kOutputs, kColumns) * bytes_of(number)));
    pack_panels(out, 0, kOutputs, panels.data());
    out.data = panels.data();
    out.panels = true;
    return out;
  }

  int64_t rows;
  std::vector<float> x, y, scales, scratch;
  std::vector<uint16_t> bf16;
  std::vector<int8_t> int8;
  std::vector<Int4Block> int4;
  std::vector<char> panels;
};

void count(benchmark::State& state, int64_t items) {
  state.SetItemsProcessed(state.iterations() * items);
}

void few(benchmark::State& state, Number number) {
  Product p(state.range(0));
  const WeightView w = p.in_rows(number);
  for (auto _ : state) {
    linear_few(p.x.data(), kColumns, p.rows, w, 0, kOutputs, p.y.data(), kOutputs, Store::kSet);
    benchmark::ClobberMemory();
  }
  count(state, p.rows * kOutputs * kColumns);
}

void many(benchmark::State& state, Number number) {
  Product p(state.range(0));
  const WeightView w = p.in_rows(number);
  std::vector<float> packed(static_cast<size_t>(packed_size(p.rows, kColumns)));
  pack_rows(p.x.data(), kColumns, p.rows, kColumns, 0, (p.rows + kTileRows - 1) / kTileRows,
            packed.data());
  for (auto _ : state) {
    linear_many(packed.data(), p.rows, w, 0, kOutputs, p.y.data(), kOutputs, Store::kSet,
                p.scratch.data());
    benchmark::ClobberMemory();
  }
  count(state, p.rows * kOutputs * kColumns);
}

void panels(benchmark::State& state, Number number) {
  Product p(state.range(0));
  const WeightView w = p.in_panels(number);
  for (auto _ : state) {
    linear_panels(p.x.data(), kColumns, p.rows, w, 0, kOutputs, p.y.data(), kOutputs, Store::kSet,
                  p.scratch.data());
    benchmark::ClobberMemory();
  }
  count(state, p.rows * kOutputs * kColumns);
}

void int4(benchmark::State& state, ByteProducts products) {
  Product p(state.range(0));
  const int64_t groups = int4_groups(kColumns);
  std::vector<Int8Group> x(static_cast<size_t>(p.rows * groups));
  const WeightView w{p.int4.data(), Number::kInt4, kOutputs, kColumns};
  for (auto _ : state) {
    for (int64_t r = 0; r < p.rows; ++r)
      quantize_activations(p.x.data() + r * kColumns, kColumns, x.data() + r * groups);
    linear_int4(x.data(), p.rows, w, 0, kOutputs, p.y.data(), kOutputs, Store::kSet, products);
    benchmark::ClobberMemory();
  }
  count(state, p.rows * kOutputs * kColumns);
}

// The three query heads that read one of SmolLM2's key heads, over range(0) tokens.
void attention(benchmark::State& state, Number number) {
  const KvLayout layout{1, 64, number};
  const int64_t tokens = state.range(0), blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  std::vector<char> memory(static_cast<size_t>(blocks * layout.block_bytes()));
  std::vector<int32_t> order;
  for (int32_t i = 0; i < blocks; ++i) order.push_back(i);
  const std::vector<float> q = numbers(3 * 64);
  for (int64_t t = 0; t < tokens; ++t)
    write_kv(layout, memory.data() + t / kBlockTokens * layout.block_bytes(), 0, t % kBlockTokens,
             q.data(), q.data() + 64);
  std::vector<float> out(q.size());
  const float* queries[] = {q.data(), q.data() + 64, q.data() + 128};
  float* outputs[] = {out.data(), out.data() + 64, out.data() + 128};
  const int64_t visible[] = {tokens, tokens, tokens};
  AttentionScratch scratch(layout);
  for (auto _ : state) {
    attend({.layout = &layout,
            .memory = memory.data(),
            .stride_bytes = layout.block_bytes(),
            .blocks = order,
            .scale = 0.125F,
            .queries = queries,
            .visible = visible,
            .outputs = outputs},
           scratch);
    benchmark::ClobberMemory();
  }
  count(state, 3 * tokens * 64 * 2);
}

void norm(benchmark::State& state) {
  const auto x = numbers(kColumns), weight = numbers(kColumns);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    rms_norm_row(x.data(), {weight.data(), Number::kF32, 1, kColumns}, 1e-5F, y.data());
    benchmark::ClobberMemory();
  }
  count(state, kColumns);
}

void largest_logit(benchmark::State& state) {
  auto x = numbers(49152);
  x[40000] = 3;
  for (auto _ : state) benchmark::DoNotOptimize(arg_max(x));
  count(state, static_cast<int64_t>(x.size()));
}

// What a parallel region costs beside its work.
void region(benchmark::State& state) {
  ThreadPool pool(2);
  for (auto _ : state) pool.run(2, [](int, int) {});
}

BENCHMARK_CAPTURE(few, bf16, Number::kBf16)->Arg(1)->Arg(8)->Arg(32);
BENCHMARK_CAPTURE(few, int8, Number::kInt8)->Arg(1)->Arg(8);
BENCHMARK_CAPTURE(many, bf16, Number::kBf16)->Arg(32)->Arg(128);
BENCHMARK_CAPTURE(panels, bf16, Number::kBf16)->Arg(1)->Arg(8)->Arg(32)->Arg(128);
BENCHMARK_CAPTURE(panels, int8, Number::kInt8)->Arg(1)->Arg(8)->Arg(32);
BENCHMARK_CAPTURE(int4, best, ByteProducts::kBest)->Arg(1)->Arg(8)->Arg(32)->Arg(128);
BENCHMARK_CAPTURE(int4, in_pairs, ByteProducts::kInPairs)->Arg(1)->Arg(8);
BENCHMARK_CAPTURE(attention, bf16, Number::kBf16)->Arg(192)->Arg(2048);
BENCHMARK(norm);
BENCHMARK(largest_logit);
BENCHMARK(region)->UseRealTime();

}  // namespace
}  // namespace dex::kernels

int main(int argc, char** argv) {
  std::fprintf(stderr, "instruction set: %s\n",
               hwy::TargetName(hwy::SupportedTargets() & -hwy::SupportedTargets()));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
