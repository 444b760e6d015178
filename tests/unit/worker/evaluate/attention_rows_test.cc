#include "worker/evaluate/attention_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "worker/evaluate/map_distance.h"
#include "worker/evaluate/map_sparsity.h"

namespace dex::evaluate {
namespace {

using at::Tensor;

// [H, T, T] by the formula, query head h with key head h / (H/K).
Tensor direct_maps(const Tensor& q, const Tensor& k, int64_t window) {
  const Tensor keys = k.repeat_interleave(q.size(1) / k.size(1), 1).transpose(0, 1);
  const Tensor scores =
      q.transpose(0, 1).matmul(keys.transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(2)));
  Tensor hidden = at::ones({q.size(0), q.size(0)}, at::kBool).triu(1);
  if (window > 0) hidden = hidden.logical_or(at::ones_like(hidden).tril(-window));
  return scores.masked_fill(hidden, -INFINITY).softmax(-1);
}

// The blocks put together again, [H, T, T].
Tensor streamed_maps(const Tensor& q, const Tensor& k, int64_t window, int64_t block_entries) {
  Tensor out = at::zeros({q.size(1), q.size(0), q.size(0)}, q.scalar_type());
  int64_t next = 0;
  for_each_attention_rows(
      q, k, window,
      [&](const AttentionRows& rows) {
        EXPECT_EQ(rows.first, next);
        next += rows.maps.size(1);
        EXPECT_EQ(rows.maps.size(2), next);  // no column after the last row
        out.slice(1, rows.first, next).slice(2, 0, next).copy_(rows.maps);
      },
      block_entries);
  EXPECT_EQ(next, q.size(0));
  return out;
}

class AttentionRowsTest : public ::testing::Test {
 protected:
  AttentionRowsTest() {
    at::manual_seed(4);
    q = at::randn({45, 6, 8}) * 2;
    k = at::randn({45, 2, 8});
  }
  Tensor q, k;
};

TEST_F(AttentionRowsTest, AreTheMapsWhateverTheBlocks) {
  for (const int64_t window : {0, 45, 10, 1}) {
    const Tensor whole = direct_maps(q, k, window);
    for (const int64_t entries : {1, 6 * 45 * 7, 1 << 22}) {
      const Tensor found = streamed_maps(q, k, window, entries);
      EXPECT_LE((found - whole).abs().max().item<double>(), 1e-6) << window << " " << entries;
    }
  }
}

// method.md §11.3: the last of four rows has q = (1, 2).
TEST(AttentionRowsOfOneHeadTest, GiveTheWorkedNumbers) {
  const Tensor q = at::tensor({0.3, 0.1, -0.2, 0.5, 0.7, -0.4, 1.0, 2.0}).view({4, 1, 2});
  const Tensor k = at::tensor({0.5, -0.2, 1.0, 0.3, -0.4, 0.8, 0.1, 0.6}).view({4, 1, 2});
  const Tensor p = streamed_maps(q, k, 0, 6)[0][3];
  const std::vector<double> expected{0.119031, 0.343793, 0.259096, 0.278080};
  for (int64_t j = 0; j < 4; ++j) EXPECT_NEAR(p[j].item<double>(), expected[j], 5e-7);
  const double direct = -(p * p.log()).sum().item<double>();
  EXPECT_NEAR(direct, 1.326238, 5e-7);
  EXPECT_NEAR(direct / std::log(4.0), 0.956679, 5e-7);
  EXPECT_NEAR(row_entropy(q, k, 0)[3][0].item<double>(), 1.326238, 5e-7);
  // The same without p: LSE − q·(A·K)/√d.
  const double lse = (k.squeeze(1).mv(q[3][0]) / std::sqrt(2.0)).logsumexp(0).item<double>();
  const double expectation = q[3][0].dot(k.squeeze(1).t().mv(p)).item<double>() / std::sqrt(2.0);
  EXPECT_NEAR(lse, 2.199085, 5e-7);
  EXPECT_NEAR(expectation, 0.872847, 5e-7);
}

TEST(AttentionRowsOfOneHeadTest, KnowUniformAndOneHotRows) {
  const Tensor k = at::randn({12, 1, 4});
  const Tensor uniform = streamed_maps(at::zeros({12, 1, 4}), k, 0, 30)[0];
  const Tensor entropy = row_entropy(at::zeros({12, 1, 4}), k, 0);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(uniform[i][i / 2].item<double>(), 1.0 / static_cast<double>(i + 1), 1e-7);
    EXPECT_NEAR(entropy[i][0].item<double>(), std::log(static_cast<double>(i + 1)), 1e-12);
  }
  const Tensor apart = (at::eye(8) * 40).unsqueeze(1);
  EXPECT_TRUE(streamed_maps(apart, apart, 0, 30)[0].equal(at::eye(8)));
  EXPECT_EQ(row_entropy(apart, apart, 0).abs().max().item<double>(), 0);
}

TEST_F(AttentionRowsTest, HaveTheEntropyOfTheirMapsWhateverTheBlocks) {
  for (const int64_t window : {0, 10}) {
    const Tensor maps = direct_maps(q, k, window).to(at::kDouble);
    const Tensor direct = -(maps * maps.clamp_min(1e-300).log()).sum(-1).t();  // [T, H]
    for (const int64_t entries : {1, 6 * 45 * 7, 1 << 22}) {
      const Tensor found = row_entropy(q, k, window, entries);
      EXPECT_LE((found - direct).abs().max().item<double>(), 2e-6) << window << " " << entries;
      for (int64_t i = 0; i < 45; ++i)
        EXPECT_LE(found[i].max().item<double>(), std::log(static_cast<double>(i + 1)) + 1e-9);
    }
  }
}

// Weights 1 − δ on one token: of H ≈ δ·(1 − ln δ) fp32 keeps every digit that δ has.
TEST_F(AttentionRowsTest, HaveTheEntropyOfAHeadThatLooksAtOneToken) {
  const Tensor near = at::tensor({6.0, -5.0, -5.5, 6.2, -4.8, -5.1}).view({6, 1, 1});
  const Tensor k32 = near.to(at::kFloat), q32 = at::ones({6, 1, 1}, at::kFloat) * 1.25;
  const Tensor exact = row_entropy(q32.to(at::kDouble), k32.to(at::kDouble), 0);
  const Tensor found = row_entropy(q32, k32, 0);
  for (const int64_t i : {1, 2}) {
    EXPECT_LT(exact[i][0].item<double>(), 1e-4);
    EXPECT_NEAR(found[i][0].item<double>(), exact[i][0].item<double>(),
                1e-5 * exact[i][0].item<double>());
  }
}

TEST_F(AttentionRowsTest, RowsFromKeepTheirNumbers) {
  const AttentionRows rows{8, at::arange(2 * 3 * 11).view({2, 3, 11}).to(at::kFloat)};
  EXPECT_TRUE(rows_from(rows, 5).maps.equal(rows.maps));
  const AttentionRows later = rows_from(rows, 10);
  EXPECT_EQ(later.first, 10);
  EXPECT_TRUE(later.maps.equal(rows.maps.slice(1, 2)));
  EXPECT_EQ(rows_from(rows, 32).maps.size(1), 0);
}

// The two maps of method.md §11.5, from a row on.
MapDistance::Result worked_distance(int64_t first) {
  const Tensor maps = at::tensor({1., 0., 0., .5, .5, 0., .2, .3, .5,  //
                                  1., 0., 0., .9, .1, 0., .6, .2, .2})
                          .view({2, 3, 3});
  MapDistance distance(1, 2);
  distance.add(rows_from({0, maps.slice(1, 0, 2).slice(2, 0, 2)}, first));  // in two blocks
  distance.add(rows_from({2, maps.slice(1, 2)}, first));
  distance.close(0);
  return distance.result();
}

TEST(MapDistanceTest, GivesTheWorkedNumbers) {
  EXPECT_NEAR(worked_distance(0).mean[0], 0.136451, 5e-7);
  EXPECT_NEAR(worked_distance(1).mean[0], 0.259256, 5e-7);
  EXPECT_EQ(worked_distance(1).pairs[0][0][0], 0);
}

TEST(MapDistanceTest, EqualMapsAreNoDistanceApartAndOppositeOnesTwo) {
  at::manual_seed(5);
  const Tensor map = at::rand({1, 20, 20});
  MapDistance distance(1, 3);
  distance.add({0, at::cat({map, map * 3, -map})});
  distance.close(0);
  const auto result = distance.result();
  EXPECT_NEAR(result.pairs[0][0][1], 0, 1e-12);
  EXPECT_NEAR(result.pairs[0][1][2], 2, 1e-12);
}

// Each document counts the same, however long it is.
TEST(MapDistanceTest, IsTheMeanOverDocuments) {
  MapDistance distance(1, 2);
  const Tensor same = at::ones({2, 9, 9});
  distance.add({0, same});
  distance.close(0);
  distance.add({0, at::tensor({1., 0., 0., 1.}).view({2, 1, 2})});  // orthogonal
  distance.close(0);
  EXPECT_EQ(distance.result().documents, 2);
  EXPECT_NEAR(distance.result().mean[0], 0.5, 1e-12);
}

TEST(MapSparsityTest, CountsEntriesUpToTheDiagonalOnly) {
  MapSparsity sparsity(1, 2, 0.25);
  // Rows 1 and 2 of a document: 5 entries a head, and one 0 that is none.
  const Tensor maps = at::tensor({.75, .25, 0., .5, .3, .2,  //
                                  1.2, -.2, 0., .6, .5, -.1})
                          .view({2, 2, 3});
  sparsity.add(0, {1, maps});
  const auto result = sparsity.result();
  EXPECT_NEAR(result.sparsity[0][0], 1.0 / 5, 1e-12);  // .2; .25 is not below
  EXPECT_NEAR(result.sparsity[0][1], 2.0 / 5, 1e-12);  // −.2, −.1
  EXPECT_EQ(result.negative_share[0][0], 0);
  EXPECT_NEAR(result.negative_share[0][1], 2.0 / 5, 1e-12);
  EXPECT_NEAR(result.negative_mass[0][1], 0.3 / 2.6, 1e-12);
}

// Rows 3 and 4 with a window of 2 see two rows each.
TEST(MapSparsityTest, CountsWhatAWindowShowsOnly) {
  MapSparsity sparsity(1, 1, 0.25);
  const Tensor maps = at::tensor({0., 0., .9, .1, 0.,  //
                                  0., 0., 0., .5, .5})
                          .view({1, 2, 5});
  sparsity.add(0, {3, maps, 2});
  EXPECT_NEAR(sparsity.result().sparsity[0][0], 1.0 / 4, 1e-12);
}

}  // namespace
}  // namespace dex::evaluate
