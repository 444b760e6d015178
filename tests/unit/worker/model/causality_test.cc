// Acceptance item 2 with its negative controls (method.md §6): the brief's literal formulas, which
// exist only here, leak later tokens into earlier outputs; the check that finds them passes for
// every form that we compute.
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/worker/model/models.h"

namespace dex::model {
namespace {

using at::Tensor;

constexpr int64_t kRows = 9, kHeads = 4, kKvHeads = 2, kWidth = 6, kChangedFrom = 5;

// One attention layer before its output projection.
struct Attention {
  Tensor map;  // [H, T, T], causal softmax
  Tensor v;    // [T, K, d]
  Tensor o;    // [T, H, d]
};

Attention attend(const Tensor& x) {
  const auto project = [&](uint64_t stream, int64_t heads) {
    return x.mm(testing::random_tensor({x.size(1), heads * kWidth}, stream, at::kDouble))
        .view({kRows, heads, kWidth});
  };
  const Tensor q = project(1, kHeads).transpose(0, 1);
  const Tensor k = project(2, kKvHeads).repeat_interleave(kHeads / kKvHeads, 1).transpose(0, 1);
  Attention a;
  a.v = project(3, kKvHeads);
  const Tensor future = at::ones({kRows, kRows}, at::kBool).triu(1);
  const Tensor scores = q.matmul(k.transpose(1, 2)) / std::sqrt(static_cast<double>(kWidth));
  a.map = scores.masked_fill(future, -INFINITY).softmax(-1);
  const Tensor v = a.v.repeat_interleave(kHeads / kKvHeads, 1).transpose(0, 1);
  a.o = a.map.matmul(v).transpose(0, 1);
  return a;
}

// How much the first rows of O' move when the tokens after them change.
double leak(const std::function<Tensor(const Attention&)>& branch) {
  Tensor x = testing::random_tensor({kRows, 16}, 7, at::kDouble) * 2;
  const Tensor before = branch(attend(x)).narrow(0, 0, kChangedFrom);
  x.narrow(0, kChangedFrom, kRows - kChangedFrom).mul_(-1.5);
  return (branch(attend(x)).narrow(0, 0, kChangedFrom) - before).abs().max().item<double>();
}

TEST(CausalityTest, NoFormOfOursLeaks) {
  const Config config = testing::tiny_config();
  for (const DexOptions& options : testing::all_options()) {
    const Adaptation adapted =
        testing::moved_adaptation(options, config, testing::tiny_weights(config));
    BranchTensors branch = adapted.layers[0].branch;
    for (Tensor* tensor : {&branch.w_d, &branch.w_down, &branch.w_up, &branch.gate}) {
      if (tensor->defined()) *tensor = tensor->to(at::kDouble);
    }
    const auto form = [&](const Attention& a) {
      return a.o + 0.3 * difference(options, branch, {a.o, a.v, {0, kRows}});
    };
    EXPECT_LE(leak(form), 1e-12) << testing::label(options);
  }
}

// softmax − softmax.mean(last axis): the mean of a row is 1/T whatever it holds, and it is taken
// off the tokens that the row may not see as well.
TEST(CausalityTest, TheRowMeanMapLeaks) {
  EXPECT_GT(leak([](const Attention& a) {
              const Tensor v = a.v.repeat_interleave(kHeads / kKvHeads, 1).transpose(0, 1);
              return (a.map - 0.3 * a.map.mean(-1, true)).matmul(v).transpose(0, 1);
            }),
            1e-3);
}

// proj(O) − O.mean(dim=−2) on [B, T, D]: that axis is the sequence.
TEST(CausalityTest, TheSequenceMeanLeaks) {
  const Tensor w = testing::random_tensor({kWidth, kWidth}, 4, at::kDouble);
  EXPECT_GT(
      leak([&](const Attention& a) { return a.o + 0.3 * (a.o.matmul(w) - a.o.mean(0, true)); }),
      1e-3);
}

// A mask from the entropy of the batch's own maps: later rows decide what earlier ones get.
TEST(CausalityTest, AMaskFromTheBatchLeaks) {
  const Tensor w = testing::random_tensor({kWidth, kWidth}, 4, at::kDouble);
  EXPECT_GT(leak([&](const Attention& a) {
              const Tensor rows = a.map * (a.map + 1e-30).log();
              const Tensor entropy = -rows.sum(-1).mean(-1);  // [H]
              const Tensor weight = (entropy - entropy.mean()).sigmoid().view({1, -1, 1});
              return a.o + 0.3 * weight * a.o.matmul(w);
            }),
            1e-3);
}

}  // namespace
}  // namespace dex::model
