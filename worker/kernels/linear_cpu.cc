// linear_few and linear_many for each instruction set that Highway compiles; the best one is taken
// at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/linear_cpu.cc"
#include <hwy/foreach_target.h>  // includes this file once an instruction set
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>

#include "worker/kernels/linear.h"

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

// Lanes of weights as fp32. bf16 is the upper half of an fp32 number.
HWY_INLINE V load(F d, const float* p) {
  return hn::LoadU(d, p);
}
HWY_INLINE V load(F d, const uint16_t* p) {
  const hn::Repartition<uint32_t, F> u32;
  const hn::Rebind<uint16_t, decltype(u32)> u16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::LoadU(u16, p))));
}
HWY_INLINE V load(F d, const int8_t* p) {
  const hn::Repartition<int32_t, F> i32;
  const hn::Rebind<int8_t, decltype(i32)> i8;
  return hn::ConvertTo(d, hn::PromoteTo(i32, hn::LoadU(i8, p)));
}
HWY_INLINE float widen(int8_t value) {
  return value;
}
HWY_INLINE float widen(float value) {
  return value;
}
HWY_INLINE float widen(uint16_t value) {
  const uint32_t bits = uint32_t{value} << 16;
  float result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

// Whether weights of this type have a scale an output.
template <class W>
inline constexpr bool kScaled = sizeof(W) == 1;

// Weights from output n on; `scales` only where they are scaled.
template <class W>
struct Source {
  const W* w;
  const float* scales;
  int64_t columns;
  [[nodiscard]] Source from(int64_t n) const {
    return {w + n * columns, kScaled<W> ? scales + n : nullptr, columns};
  }
};
template <class W>
Source<W> source(const WeightView& view) {
  return {static_cast<const W*>(view.data), view.scales, view.columns};
}

// C outputs are C streams a row apart, more than the processor's own prefetching follows: on Zen 4
// it reached 8 of 22 GB/s. `at` runs through the same weights in the order of memory.
template <int C, class W>
HWY_INLINE void fetch_ahead(const W* at, int64_t lanes) {
  constexpr int64_t kAhead = 4096, kLine = 64 / sizeof(W);
  for (int64_t i = 0; i < C * lanes; i += kLine) hwy::Prefetch(at + kAhead + i);
}

// R rows times C outputs; the sums live in registers. Every (row, output) is summed in the same
// order, whatever R and C are: lane by lane over k, then the lanes, then what is left of k.
template <int R, int C, class W>
HWY_INLINE void few_tile(const float* HWY_RESTRICT x, int64_t x_stride, const W* HWY_RESTRICT w,
                         const float* HWY_RESTRICT scales, int64_t columns, float* HWY_RESTRICT y,
                         int64_t y_stride, Store store) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[R][C];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) sum[r][c] = hn::Zero(d);
  }
  int64_t k = 0;
  for (; k + lanes <= columns; k += lanes) {
    fetch_ahead<C>(w + C * k, lanes);
    V weight[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) weight[c] = load(d, w + c * columns + k);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const V in = hn::LoadU(d, x + r * x_stride + k);
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) sum[r][c] = hn::MulAdd(in, weight[c], sum[r][c]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[r][c]));
      for (int64_t i = k; i < columns; ++i)
        total += x[r * x_stride + i] * widen(w[c * columns + i]);
      if constexpr (kScaled<W>) total *= scales[c];
      float& out = y[r * y_stride + c];
      out = store == Store::kAdd ? out + total : total;
    }
  }
}

template <int R, class W>
void few_rows(const float* x, int64_t x_stride, const Source<W>& w, int64_t begin, int64_t end,
              float* y, int64_t y_stride, Store store) {
  // AVX-512 has 32 registers, the others 16: sums, one input and C weights must fit.
  constexpr int kSums = HWY_TARGET <= HWY_AVX3 ? 24 : 12;
  constexpr int C = R == 1 ? 4 : std::max(1, std::min(4, (kSums - 1) / (R + 1)));
  int64_t n = begin;
  for (; n + C <= end; n += C) {
    const Source<W> at = w.from(n);
    few_tile<R, C>(x, x_stride, at.w, at.scales, w.columns, y + n, y_stride, store);
  }
  for (; n < end; ++n) {
    const Source<W> at = w.from(n);
    few_tile<R, 1>(x, x_stride, at.w, at.scales, w.columns, y + n, y_stride, store);
  }
}

template <class W>
void few(const float* x, int64_t x_stride, int64_t rows, const Source<W>& w, int64_t begin,
         int64_t end, float* y, int64_t y_stride, Store store) {
  constexpr int kMost = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
  // Some outputs at a time, so that their weights stay in the first cache while all rows pass.
  const int64_t block = rows <= kMost ? end - begin : 16;
  for (int64_t n = begin; n < end; n += block) {
    const int64_t stop = std::min(end, n + block);
    for (int64_t r = 0; r < rows;) {
      const float* in = x + r * x_stride;
      float* out = y + r * y_stride;
      const int64_t left = rows - r;
      if (kMost == 8 && left >= 8) {
        few_rows<kMost>(in, x_stride, w, n, stop, out, y_stride, store), r += 8;
      } else if (left >= 4) {
        few_rows<4>(in, x_stride, w, n, stop, out, y_stride, store), r += 4;
      } else if (left == 3) {
        few_rows<3>(in, x_stride, w, n, stop, out, y_stride, store), r += 3;
      } else if (left == 2) {
        few_rows<2>(in, x_stride, w, n, stop, out, y_stride, store), r += 2;
      } else {
        few_rows<1>(in, x_stride, w, n, stop, out, y_stride, store), r += 1;
      }
    }
  }
}

void LinearFew(const float* x, int64_t x_stride, int64_t rows, const WeightView& w, int64_t begin,
               int64_t end, float* y, int64_t y_stride, Store store) {
  if (w.number == Number::kInt8) {
    few(x, x_stride, rows, source<int8_t>(w), begin, end, y, y_stride, store);
  } else if (w.number == Number::kBf16) {
    few(x, x_stride, rows, source<uint16_t>(w), begin, end, y, y_stride, store);
  } else {
    few(x, x_stride, rows, source<float>(w), begin, end, y, y_stride, store);
  }
}

// ---- many rows: the lanes are rows, weights are broadcast
// ---------------------------------------------------

// Outputs in a block: 12 × 2 sums fill AVX-512's registers, 6 × 2 those of the others.
constexpr int kBlock = HWY_TARGET <= HWY_AVX3 ? 12 : 6;

// N outputs times two vectors of rows; x is [columns][kTileRows].
template <int N>
HWY_INLINE void many_tile(const float* HWY_RESTRICT x, const float* HWY_RESTRICT w, int64_t columns,
                          int64_t rows, float* HWY_RESTRICT y, int64_t y_stride, Store store) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum[N][2];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) sum[n][0] = sum[n][1] = hn::Zero(d);
  for (int64_t k = 0; k < columns; ++k) {
    const V x0 = hn::LoadU(d, x + k * kTileRows);
    const V x1 = hn::LoadU(d, x + k * kTileRows + lanes);
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      const V weight = hn::Set(d, w[n * columns + k]);
      sum[n][0] = hn::MulAdd(weight, x0, sum[n][0]);
      sum[n][1] = hn::MulAdd(weight, x1, sum[n][1]);
    }
  }
  // The sums lie output by output, y row by row: through a small square that stays in the first
  // cache.
  HWY_ALIGN float square[N * kTileRows];
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n) {
    hn::StoreU(sum[n][0], d, square + n * kTileRows);
    hn::StoreU(sum[n][1], d, square + n * kTileRows + lanes);
  }
  for (int64_t r = 0; r < std::min(rows, 2 * lanes); ++r) {
    float* out = y + r * y_stride;
    if (store == Store::kAdd) {
      for (int n = 0; n < N; ++n) out[n] += square[n * kTileRows + r];
    } else {
      for (int n = 0; n < N; ++n) out[n] = square[n * kTileRows + r];
    }
  }
}

template <int N>
void many_block(const float* packed, int64_t rows, const float* w, int64_t columns, float* y,
                int64_t y_stride, Store store) {
  const auto step = static_cast<int64_t>(2 * hn::Lanes(F()));
  for (int64_t tile = 0; tile < rows; tile += kTileRows) {
    const float* x = packed + tile * columns;
    for (int64_t r = 0; r < kTileRows && tile + r < rows; r += step) {
      many_tile<N>(x + r, w, columns, rows - tile - r, y + (tile + r) * y_stride, y_stride, store);
    }
  }
}

// The first `rows` outputs as fp32, their scales multiplied in.
HWY_INLINE const float* widened(const Source<float>& source, int64_t, float*) {
  return source.w;
}
HWY_INLINE const float* widened(const Source<uint16_t>& source, int64_t rows, float* scratch) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t count = rows * source.columns;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load(d, source.w + i), d, scratch + i);
  for (; i < count; ++i) scratch[i] = widen(source.w[i]);
  return scratch;
}
HWY_INLINE const float* widened(const Source<int8_t>& source, int64_t rows, float* scratch) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t n = 0; n < rows; ++n) {
    const int8_t* in = source.w + n * source.columns;
    float* out = scratch + n * source.columns;
    const V scale = hn::Set(d, source.scales[n]);
    int64_t k = 0;
    for (; k + lanes <= source.columns; k += lanes)
      hn::StoreU(hn::Mul(load(d, in + k), scale), d, out + k);
    for (; k < source.columns; ++k) out[k] = widen(in[k]) * source.scales[n];
  }
  return scratch;
}

template <class W>
void many(const float* packed, int64_t rows, const Source<W>& w, int64_t begin, int64_t end,
          float* y, int64_t y_stride, Store store, float* scratch) {
  const int64_t columns = w.columns;
  int64_t n = begin;
  for (; n + kBlock <= end; n += kBlock) {
    const float* block = widened(w.from(n), kBlock, scratch);
    many_block<kBlock>(packed, rows, block, columns, y + n, y_stride, store);
  }
  for (; n + 4 <= end; n += 4) {
    const float* block = widened(w.from(n), 4, scratch);
    many_block<4>(packed, rows, block, columns, y + n, y_stride, store);
  }
  for (; n < end; ++n) {
    const float* block = widened(w.from(n), 1, scratch);
    many_block<1>(packed, rows, block, columns, y + n, y_stride, store);
  }
}

void LinearMany(const float* packed, int64_t rows, const WeightView& w, int64_t begin, int64_t end,
                float* y, int64_t y_stride, Store store, float* scratch) {
  if (w.number == Number::kInt8) {
    many(packed, rows, source<int8_t>(w), begin, end, y, y_stride, store, scratch);
  } else if (w.number == Number::kBf16) {
    many(packed, rows, source<uint16_t>(w), begin, end, y, y_stride, store, scratch);
  } else {
    many(packed, rows, source<float>(w), begin, end, y, y_stride, store, scratch);
  }
}

}  // namespace dex::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex::kernels {

HWY_EXPORT(LinearFew);
HWY_EXPORT(LinearMany);

void linear_few(const float* x, int64_t x_stride, int64_t rows, const WeightView& w, int64_t begin,
                int64_t end, float* y, int64_t y_stride, Store store) {
  HWY_DYNAMIC_DISPATCH(LinearFew)(x, x_stride, rows, w, begin, end, y, y_stride, store);
}

int64_t linear_scratch(int64_t columns) {
  return 12 * columns;
}

void linear_many(const float* packed, int64_t rows, const WeightView& w, int64_t begin, int64_t end,
                 float* y, int64_t y_stride, Store store, float* scratch) {
  HWY_DYNAMIC_DISPATCH(LinearMany)(packed, rows, w, begin, end, y, y_stride, store, scratch);
}

void pack_rows(const float* x, int64_t x_stride, int64_t rows, int64_t columns, int64_t begin_tile,
               int64_t end_tile, float* packed) {
  for (int64_t tile = begin_tile; tile < end_tile; ++tile) {
    float* out = packed + tile * kTileRows * columns;
    const int64_t first = tile * kTileRows, here = std::min(kTileRows, rows - first);
    // Blocks of 16 columns: one cache line of each row, so that no line is read twice.
    for (int64_t k0 = 0; k0 < columns; k0 += 16) {
      const int64_t k1 = std::min(columns, k0 + 16);
      for (int64_t r = 0; r < kTileRows; ++r) {
        const float* in = x + (first + r) * x_stride;
        for (int64_t k = k0; k < k1; ++k) out[k * kTileRows + r] = r < here ? in[k] : 0.0F;
      }
    }
  }
}

}  // namespace dex::kernels
#endif
