// Acceptance items 1 and 2 with their negative controls (method.md §6): the brief's literal
// formulas, which exist only here, leak later tokens into earlier outputs and change the model
// before the first update; the checks that find them pass for every form that we compute.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "tests/unit/worker/model/models.h"
#include "worker/model/dex_branch.h"

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

// How far O' is from O where the branch is new and must do nothing.
double change(const std::function<Tensor(const Attention&)>& branch) {
  const Attention a = attend(testing::random_tensor({kRows, 16}, 7, at::kDouble) * 2);
  return (branch(a) - a.o).abs().max().item<double>();
}

// The projection at its start: D of the literal forms is what they take away, and nothing else.
Tensor projected(const Attention& a) {
  return a.o.matmul(at::zeros({kWidth, kWidth}, at::kDouble));
}

TEST(IdentityControlTest, NoFormOfOursChangesTheStart) {
  const Config config = testing::tiny_config();
  for (const DexOptions& options : testing::all_options()) {
    BranchTensors branch = initial_branch(options, config, 0, 1);
    for (Tensor* tensor : {&branch.w_d, &branch.w_down, &branch.w_up, &branch.gate}) {
      if (tensor->defined()) *tensor = tensor->to(at::kDouble);
    }
    const auto form = [&](const Attention& a) {
      return a.o + 0.3 * difference(options, branch, {a.o, a.v, {0, kRows}});
    };
    EXPECT_EQ(change(form), 0) << testing::label(options);
  }
}

TEST(IdentityControlTest, TheRowMeanMapIsNotTheBase) {
  EXPECT_GT(change([](const Attention& a) {
              const Tensor v = a.v.repeat_interleave(kHeads / kKvHeads, 1).transpose(0, 1);
              return (a.map - 0.1 * a.map.mean(-1, true)).matmul(v).transpose(0, 1);
            }),
            1e-3);
}

TEST(IdentityControlTest, TheSequenceMeanIsNotTheBase) {
  EXPECT_GT(
      change([](const Attention& a) { return a.o + 0.1 * (projected(a) - a.o.mean(0, true)); }),
      1e-3);
}

// (1 − λ)·orig + λ·diff with the bare difference: attention is 10 % smaller before anything is
// learned.
TEST(IdentityControlTest, TheMixWithABareDifferenceShrinksAttention) {
  const auto mixed = [](const Attention& a) { return 0.9 * a.o + 0.1 * projected(a); };
  const double largest = change([](const Attention& a) { return 2 * a.o; });  // that is max |O|
  EXPECT_NEAR(change(mixed), 0.1 * largest, 1e-12);
  // What it was repaired to: diff := orig + mask·diff.
  EXPECT_LE(change([](const Attention& a) { return 0.9 * a.o + 0.1 * (a.o + projected(a)); }),
            1e-12);
}

// "Down-weighting" the selected heads, here every other one, would prune them.
TEST(IdentityControlTest, DownWeightedHeadsAreNotTheBase) {
  const Tensor weight = (1 - 0.1 * head_mask({0, 2}, kHeads).to(at::kDouble)).view({1, -1, 1});
  EXPECT_GT(change([&](const Attention& a) { return weight * a.o + 0.1 * projected(a); }), 1e-3);
}

// How far λ is from what was asked for at its two ends.
double off_the_ends(const std::function<double(int64_t)>& lambda, double start, double end) {
  return std::max(std::abs(lambda(0) - start), std::abs(lambda(100) - end));
}

// ½(1 − cos(π·step/total)) for "0.1 → 0.5" runs 0 → 1.
TEST(LambdaControlTest, TheLiteralCosineMissesBothEnds) {
  const LambdaOptions ours = {
      .schedule = Schedule::kSeedCosine, .anneal_steps = 100, .start = 0.1, .end = 0.5};
  const auto literal = [](int64_t t) {
    return 0.5 * (1 - std::cos(std::numbers::pi * static_cast<double>(t) / 100));
  };
  EXPECT_EQ(off_the_ends([&](int64_t t) { return lambda_at(ours, 0, t, 0); }, 0.1, 0.5), 0);
  EXPECT_NEAR(off_the_ends(literal, 0.1, 0.5), 0.5, 1e-12);
  const std::pair<int64_t, double> table[] = {
      {0, 0.0}, {25, 0.146447}, {50, 0.5}, {75, 0.853553}, {100, 1.0}};
  for (const auto& [t, value] : table) EXPECT_NEAR(literal(t), value, 1e-6) << t;
}

// With layers counted from 1 the first layer would have λ_init 0.3555 (method.md §2.2).
TEST(LambdaControlTest, LayersCountFromNought) {
  const auto from_one = [](int64_t layer) {
    return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer + 1));
  };
  EXPECT_DOUBLE_EQ(lambda_init(0), 0.2);
  EXPECT_NEAR(std::abs(from_one(0) - lambda_init(0)), 0.155509, 1e-6);
}

}  // namespace
}  // namespace dex::model
