#include "worker/evaluate/feature_similarity.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dex::evaluate {
namespace {

using at::Tensor;

// Heads [n, d] side by side as an Observer shows them, in blocks of `block` positions.
FeatureSimilarity::Result similarity(const std::vector<Tensor>& heads, int64_t block = 1 << 20) {
  const Tensor o = at::stack(heads, 1);
  FeatureSimilarity out(1, o.size(1), o.size(2));
  for (int64_t at = 0; at < o.size(0); at += block)
    out.add(0, o.slice(0, at, std::min(o.size(0), at + block)));
  return out.result();
}

Tensor centred(const Tensor& x) {
  return x - x.mean(0, true);
}

double direct(const Tensor& x, const Tensor& y) {
  const auto norm = [](const Tensor& a, const Tensor& b) {
    return centred(a).t().mm(centred(b)).norm().item<double>();
  };
  return norm(y, x) * norm(y, x) / (norm(x, x) * norm(y, y));
}

// HSIC1 of method.md §4.4 with its n×n matrices.
double direct_hsic(const Tensor& x, const Tensor& y) {
  const auto n = static_cast<double>(x.size(0));
  const auto kernel = [](const Tensor& a) {
    Tensor out = a.mm(a.t());
    out.fill_diagonal_(0);
    return out;
  };
  const Tensor k = kernel(x), l = kernel(y);
  const double trace = k.mm(l).trace().item<double>();
  const double sums = k.sum().item<double>() * l.sum().item<double>() / ((n - 1) * (n - 2));
  return (trace + sums - 2 / (n - 2) * k.mm(l).sum().item<double>()) / (n * (n - 3));
}

double direct_unbiased(const Tensor& x, const Tensor& y) {
  return direct_hsic(x, y) / std::sqrt(direct_hsic(x, x) * direct_hsic(y, y));
}

TEST(FeatureSimilarityTest, GivesTheWorkedNumbers) {  // method.md §11.5
  const Tensor x = at::tensor({1., 2., 3., 0., -1., 1., 2., 4.}).view({4, 2});
  const Tensor y = at::tensor({0., 1., 2., 2., 1., -1., 3., 5.}).view({4, 2});
  const auto found = similarity({x, y}, 3);
  EXPECT_NEAR(found.mean[0], 0.659774, 5e-7);
  EXPECT_NEAR(direct(x, y), 0.659774, 5e-7);
  EXPECT_EQ(found.positions, 4);
  EXPECT_DOUBLE_EQ(found.positions_per_dimension, 2);
}

TEST(FeatureSimilarityTest, IsOneUpToRotationScaleAndShift) {
  at::manual_seed(6);
  const Tensor x = at::randn({200, 5}, at::kDouble) + 3;
  const Tensor rotation = std::get<0>(at::linalg_qr(at::randn({5, 5}, at::kDouble)));
  const auto found = similarity({x, x, x.mm(rotation) * -2.5 + 7});
  for (const size_t other : {1, 2}) {
    EXPECT_NEAR(found.pairs[0][0][other], 1, 1e-9);
    EXPECT_NEAR(found.unbiased_pairs[0][0][other], 1, 1e-9);
  }
}

TEST(FeatureSimilarityTest, StreamedIsDirectForBothVariants) {
  at::manual_seed(7);
  const Tensor x = at::randn({37, 4}, at::kDouble) + 2;
  const Tensor y = x.slice(1, 0, 4) * at::randn({4}, at::kDouble) + at::randn({37, 4}, at::kDouble);
  const Tensor z = at::randn({37, 4}, at::kDouble) - 1;
  for (const int64_t block : {1, 10, 37}) {
    const auto found = similarity({x, y, z}, block);
    EXPECT_NEAR(found.pairs[0][0][1], direct(x, y), 1e-9);
    EXPECT_NEAR(found.pairs[0][1][2], direct(y, z), 1e-9);
    EXPECT_NEAR(found.unbiased_pairs[0][0][1], direct_unbiased(x, y), 1e-9);
    EXPECT_NEAR(found.unbiased_pairs[0][2][1], direct_unbiased(y, z), 1e-9);
  }
}

// The reason for the second variant: of unrelated features the biased one says "alike" when n is
// small, the other about 0.
TEST(FeatureSimilarityTest, UnbiasedIsNearZeroForUnrelatedHeads) {
  at::manual_seed(8);
  const Tensor x = at::randn({60, 30}, at::kDouble), y = at::randn({60, 30}, at::kDouble);
  const auto found = similarity({x, y});
  EXPECT_GT(found.mean[0], 0.25);
  EXPECT_NEAR(found.unbiased_mean[0], 0, 0.1);
  EXPECT_DOUBLE_EQ(found.positions_per_dimension, 2);
}

TEST(FeatureSimilarityTest, ThreePositionsHaveNoUnbiasedValue) {
  at::manual_seed(9);
  const auto found = similarity({at::randn({3, 2}), at::randn({3, 2})});
  EXPECT_TRUE(std::isnan(found.unbiased_mean[0]));
  EXPECT_TRUE(std::isfinite(found.mean[0]));
}

}  // namespace
}  // namespace dex::evaluate
