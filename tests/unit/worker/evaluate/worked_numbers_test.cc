// Worked numbers of method.md §11 that the measures go through: the branch's share (§11.1), rows of
// a map (§11.3), what CKA is made of (§11.5), importance in its unit (§11.7).
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "worker/evaluate/attention_rows.h"
#include "worker/evaluate/branch_effect.h"
#include "worker/evaluate/feature_similarity.h"
#include "worker/evaluate/head_units.h"

namespace dex::evaluate {
namespace {

// What BranchMeter finds of O and λD of §11.1 in one layer whose `mask` selects.
BranchEffect effect_of_worked_branch(const std::vector<float>& mask, model::Sign sign) {
  model::Adaptation adaptation;
  adaptation.options.sign = sign;
  adaptation.layers.resize(1);
  adaptation.layers[0].mask = at::tensor(mask);
  adaptation.layers[0].lambda = {.fixed = 0.3, .learned = 0};
  const at::Tensor o = at::tensor({1.0F, 2.0F, 3.0F, -1.0F}).view({1, 2, 2});
  const at::Tensor d = at::tensor({4.5F, -0.5F, -0.5F, -3.25F}).view({1, 2, 2});
  const at::Tensor strength =
      adaptation.layers[0].mask.view({1, 2, 1}) * (0.3 * adaptation.options.sign_value());
  BranchMeter meter(adaptation);
  meter.observer().on_branch(0, o, d * strength);
  return meter.result();
}

TEST(BranchMeterTest, GivesTheWorkedShares) {  // §11.1
  struct Case {
    std::vector<float> mask;
    double ratio, cosine;
  };
  for (const Case& one : {Case{{0, 1}, 0.311950, 0.168296}, Case{{1, 1}, 0.433445, 0.242245}}) {
    for (const model::Sign sign : {model::Sign::kMinus, model::Sign::kPlus}) {
      const BranchEffect effect = effect_of_worked_branch(one.mask, sign);
      EXPECT_NEAR(effect.value, one.ratio, 1e-6);
      ASSERT_EQ(effect.layers.size(), 1u);
      EXPECT_NEAR(effect.layers[0].ratio.value(), one.ratio, 1e-6);
      EXPECT_NEAR(effect.layers[0].cosine, one.cosine, 1e-6);  // of O and λD, whatever the sign
      EXPECT_DOUBLE_EQ(effect.layers[0].lambda, 0.3);
      EXPECT_EQ(effect.verdict, BranchEffect::Verdict::kActive);
      EXPECT_STREQ(name(effect.verdict), "ACTIVE");
    }
  }
}

TEST(BranchMeterTest, WithoutASelectedHeadThereIsNothingToJudge) {
  const BranchEffect effect = effect_of_worked_branch({0, 0}, model::Sign::kMinus);
  EXPECT_EQ(effect.verdict, BranchEffect::Verdict::kNotApplicable);
  EXPECT_FALSE(effect.layers.at(0).ratio.has_value());
}

// §11.3: the row's weights are exp(logit − LSE), so its four logits can be read back.
TEST(WorkedRowTest, HasItsFourLogits) {
  const at::Tensor q = at::tensor({1.0, 2.0}).repeat({4}).view({4, 1, 2});
  const at::Tensor k = at::tensor({0.5, -0.2, 1.0, 0.3, -0.4, 0.8, 0.1, 0.6}).view({4, 1, 2});
  at::Tensor last;
  for_each_attention_rows(q, k, 0, [&](const AttentionRows& rows) {
    last = rows.maps.select(0, 0).select(0, rows.maps.size(1) - 1).to(at::kDouble).clone();
  });
  ASSERT_EQ(last.numel(), 4);
  const std::vector<double> logits{0.070711, 1.131371, 0.848528, 0.919239};
  for (int64_t j = 0; j < 4; ++j) {
    EXPECT_NEAR(std::log(last[j].item<double>()) + 2.199085, logits[static_cast<size_t>(j)], 2e-6)
        << j;
  }
}

// §11.3, its last line: logits ln p with p = (.5, .25, .125, .125), d = 1.
TEST(WorkedRowTest, HasItsEntropy) {
  const at::Tensor q = at::ones({4, 1, 1}, at::kDouble);
  const at::Tensor k = at::tensor({0.5, 0.25, 0.125, 0.125}, at::kDouble).log().view({4, 1, 1});
  EXPECT_NEAR(row_entropy(q, k, 0)[3][0].item<double>(), 1.213008, 5e-7);
}

TEST(FeatureSimilarityMomentsTest, AreTheWorkedNumbers) {  // §11.5
  const at::Tensor x = at::tensor({1., 2., 3., 0., -1., 1., 2., 4.}).view({4, 2});
  const at::Tensor y = at::tensor({0., 1., 2., 2., 1., -1., 3., 5.}).view({4, 2});
  const at::Tensor o = at::stack({x, y}, 1);
  FeatureSimilarity streamed(1, 2, 2);
  streamed.add(0, o.slice(0, 0, 3));
  streamed.add(0, o.slice(0, 3));
  const auto [sums, centred] = streamed.moments(0);
  EXPECT_TRUE(sums.equal(at::tensor({5.0, 7.0, 6.0, 7.0}, at::kDouble)));
  const at::Tensor expected = at::tensor({8.75, 0.25, 3.5, 9.25, 0.25, 8.75, 2.5, 8.75, 3.5, 2.5,
                                          5.0, 7.5, 9.25, 8.75, 7.5, 18.75},
                                         at::kDouble)
                                  .view({4, 4});
  EXPECT_LE((centred - expected).abs().max().item<double>(), 1e-12);
  const auto block = [s = centred](int64_t g, int64_t h) {
    return s.slice(0, 2 * g, 2 * g + 2).slice(1, 2 * h, 2 * h + 2).norm().item<double>();
  };
  EXPECT_NEAR(block(1, 0) * block(1, 0), 180.625, 1e-9);
  EXPECT_NEAR(block(0, 0), 12.379418, 5e-7);
  EXPECT_NEAR(block(1, 1), 22.114758, 5e-7);
  EXPECT_NEAR(block(1, 0) * block(1, 0) / (block(0, 0) * block(1, 1)), 0.659774, 5e-7);
}

TEST(HeadUnitsTest, L2normOfTheWorkedImportance) {  // §11.7
  const std::vector<double> unit =
      contribution_in_unit(std::vector<double>{0.073128, 0.427965}, ContributionUnit::kL2norm);
  EXPECT_THAT(unit, ::testing::ElementsAre(::testing::DoubleNear(0.168433, 2e-6),
                                           ::testing::DoubleNear(0.985713, 2e-6)));
}

}  // namespace
}  // namespace dex::evaluate
