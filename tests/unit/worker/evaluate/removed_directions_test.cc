// Directions that a folding branch takes away, by eigenvalues that diagonal maps show.
#include "worker/evaluate/removed_directions.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace dex::evaluate {
namespace {

using at::Tensor;

TEST(RemovedDirectionsTest, AreEigenvaluesOfTheSymmetricPart) {
  // Symmetric part of I − 1·w: diagonal 1 − {2, 0.8, 0.1}; the skew part changes nothing.
  Tensor w = at::diag(at::tensor({2.0, 0.8, 0.1}));
  w[0][1] += 5;
  w[1][0] -= 5;
  const auto removed = removed_directions(w, -1);
  EXPECT_EQ(removed.below_zero, 1);
  EXPECT_EQ(removed.below_half, 2);
  EXPECT_EQ(removed_directions(w, 1).below_half, 0);  // plus adds
}

// Two layers of three heads of two dimensions, λ = 1; a branch in the first layer only.
model::Adaptation branch_of(model::Projection projection, const Tensor& w_d, const Tensor& mask) {
  model::Adaptation out;
  out.options.projection = projection;
  out.options.lambda.schedule = model::Schedule::kConstant;
  out.layers.resize(2);
  for (auto& layer : out.layers) {
    layer.branch.w_d = w_d;
    layer.lambda = {.fixed = 1};
    layer.mask = at::zeros({3});
  }
  out.layers[0].mask = mask;
  return out;
}

// What is below 0 and below a half; −1: no branch acts.
std::vector<std::pair<int64_t, int64_t>> counts_of(const RemovedTable& table, size_t layer) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const auto& each : table.layers[layer])
    out.emplace_back(each ? each->below_zero : -1, each ? each->below_half : -1);
  return out;
}

using Counts = std::vector<std::pair<int64_t, int64_t>>;

TEST(RemovedDirectionsTest, AreTheHeadsWithTheirMask) {
  // 1 − m·{1.5, 0.6}: −0.5, 0.4 for m = 1; 0.25, 0.7 for m = ½ (soft_floor).
  const auto found =
      removed_by(branch_of(model::Projection::kShared, at::diag(at::tensor({1.5, 0.6})),
                           at::tensor({1.0, 0.0, 0.5})),
                 3);
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(found->by_layer);
  EXPECT_EQ(counts_of(*found, 0), (Counts{{1, 2}, {-1, -1}, {0, 1}}));
  EXPECT_EQ(counts_of(*found, 1), (Counts{{-1, -1}, {-1, -1}, {-1, -1}}));
}

TEST(RemovedDirectionsTest, OfAMapAHeadAreEachItsOwn) {
  const Tensor maps = at::stack({at::diag(at::tensor({2.0, 2.0})), at::diag(at::tensor({0.1, 0.2})),
                                 at::diag(at::tensor({0.6, 0.1}))});
  const auto found = removed_by(branch_of(model::Projection::kPerHead, maps, at::ones({3})), 3);
  EXPECT_EQ(counts_of(*found, 0), (Counts{{2, 2}, {0, 0}, {0, 1}}));
}

// A dense map is one over all heads: one number a layer, of the columns of heads that have it.
TEST(RemovedDirectionsTest, OfADenseMapAreALayers) {
  const Tensor w_d = at::diag(at::tensor({2.0, 0.6, 3.0, 3.0, 0.1, 1.1}));
  auto adaptation = branch_of(model::Projection::kDense, w_d, at::tensor({1.0, 0.0, 0.5}));
  // Head 0: −1, 0.4. Head 1 has none: 1, 1. Head 2 by half: 0.95, 0.45.
  auto found = removed_by(adaptation, 3);
  ASSERT_TRUE(found.has_value() && found->by_layer);
  EXPECT_EQ(counts_of(*found, 0), (Counts{{1, 3}}));
  EXPECT_EQ(counts_of(*found, 1), (Counts{{-1, -1}}));
  // The same map as two factors of a bottleneck over all heads.
  adaptation.options.projection = model::Projection::kBottleneck;
  adaptation.options.bottleneck_scope = model::BottleneckScope::kDense;
  for (auto& layer : adaptation.layers) {
    layer.branch.w_down = w_d;
    layer.branch.w_up = at::eye(6, at::kDouble);
    layer.branch.w_d = {};
  }
  found = removed_by(adaptation, 3);
  ASSERT_TRUE(found.has_value() && found->by_layer);
  EXPECT_EQ(counts_of(*found, 0), (Counts{{1, 3}}));
  // With an activation it is no matrix and has no eigenvalues.
  adaptation.options.bottleneck_activation = model::Activation::kSilu;
  EXPECT_FALSE(removed_by(adaptation, 3).has_value());
}

TEST(RemovedDirectionsTest, AreOfFormsThatTurnAHeadsOwnOutputOnly) {
  auto adaptation =
      branch_of(model::Projection::kShared, at::diag(at::tensor({1.5, 0.6})), at::ones({3}));
  for (const auto form : {model::Form::kPaper, model::Form::kHeadMean}) {
    adaptation.options.form = form;
    EXPECT_TRUE(removed_by(adaptation, 3).has_value());
  }
  for (const auto form : {model::Form::kNone, model::Form::kPrefixMean, model::Form::kUniformMap}) {
    adaptation.options.form = form;
    EXPECT_FALSE(removed_by(adaptation, 3).has_value());
  }
  EXPECT_FALSE(removed_by({}, 3).has_value());
}

}  // namespace
}  // namespace dex::evaluate
