#include "worker/evaluate/head_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dex::evaluate {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// The fixture of method.md §11.6: one layer of eight heads.
const std::vector<double> kEntropy{2.0, 1.5, 2.9, 1.9, 2.1, 3.3, 1.1, 2.4};
const std::vector<double> kImportance{.20, .012, .035, .30, .004, .12, .40, .024};

HeadScores fixture() {
  HeadScores scores;
  scores.entropy_nats = {kEntropy};
  scores.entropy_normalized = {std::vector<double>(8, 0.5)};
  scores.importance = {kImportance};
  return scores;
}

SelectionRule threshold(double tau, double eta) {
  SelectionRule rule;
  rule.criterion = Criterion::kThreshold;
  rule.tau = tau;
  rule.eta = eta;
  return rule;
}

std::vector<int32_t> chosen(const SelectionRule& rule) {
  return select_heads(rule, fixture(), 1, 8)[0];
}

TEST(HeadUnitsTest, ZscoreAndL2normGiveTheWorkedNumbers) {
  const std::vector<double> z{-0.224860, -0.974391, 1.124298,  -0.374766,
                              -0.074953, 1.723923,  -1.574017, 0.374766};
  EXPECT_THAT(zscore(kEntropy), Pointwise(DoubleNear(5e-7), z));
  const std::vector<double> norm{0.361338, 0.021680, 0.063234, 0.542007,
                                 0.007227, 0.216803, 0.722675, 0.043361};
  EXPECT_THAT(contribution_in_unit(kImportance, ContributionUnit::kL2norm),
              Pointwise(DoubleNear(5e-7), norm));
}

TEST(HeadSelectionTest, AFractionIsNotCutByItsRounding) {
  SelectionRule rule;
  rule.criterion = Criterion::kImportance;
  HeadScores scores;
  scores.importance = {std::vector<double>(50, 1.0)};
  const auto count = [&](double fraction) {
    rule.fraction = fraction;
    return select_heads(rule, scores, 1, 50)[0].size();
  };
  EXPECT_EQ(count(0.58), 29u);  // the product in fp64 is 28.999999999999996
  EXPECT_EQ(count(0.59), 29u);  // of 29.5
  EXPECT_EQ(count(0.001), 1u);
  EXPECT_EQ(count(1.0), 50u);
}

TEST(HeadUnitsTest, OtherUnitsFollowTheirDefinitions) {
  EXPECT_THAT(quantile(std::vector<double>{3, 1, 2, 2}),
              ElementsAre(DoubleNear(1, 1e-12), 0.0, DoubleNear(1.0 / 3, 1e-12),
                          DoubleNear(1.0 / 3, 1e-12)));
  EXPECT_THAT(contribution_in_unit(std::vector<double>{1, 3}, ContributionUnit::kShare),
              ElementsAre(0.25, 0.75));
  EXPECT_THAT(contribution_in_unit(std::vector<double>{1, 4}, ContributionUnit::kRelmax),
              ElementsAre(0.25, 1.0));
  EXPECT_THAT(zscore(std::vector<double>{2, 2}), ElementsAre(0.0, 0.0));
  EXPECT_THAT(contribution_in_unit(std::vector<double>{0, 0}, ContributionUnit::kL2norm),
              ElementsAre(0.0, 0.0));
}

TEST(HeadSelectionTest, ThresholdsGiveTheWorkedSets) {
  EXPECT_THAT(chosen(threshold(1.0, .03)), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(chosen(threshold(1.2, .05)), ElementsAre(1, 4, 5, 7));
  EXPECT_THAT(chosen(threshold(1.5, .07)), ElementsAre(1, 2, 4, 5, 7));
  EXPECT_THAT(chosen(threshold(1.8, .05)), ElementsAre(1, 4, 7));
}

TEST(HeadSelectionTest, TopKTakesHighestEntropyAndLowestImportance) {
  EXPECT_THAT(chosen({}), ElementsAre(2, 4, 5, 7));
  SelectionRule importance;
  importance.criterion = Criterion::kImportance;
  EXPECT_THAT(chosen(importance), ElementsAre(1, 2, 4, 7));
}

TEST(HeadSelectionTest, OddHeadCountsRoundDownAndTiesTakeTheLowerIndex) {
  HeadScores scores;
  scores.entropy_nats = {{1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 2, 3}};
  const auto sets = select_heads({}, scores, 2, 9);
  EXPECT_THAT(sets[0], ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(sets[1], ElementsAre(0, 1, 7, 8));
  HeadScores single;
  single.entropy_nats = {{1}};
  EXPECT_THAT(select_heads({}, single, 1, 1)[0], ElementsAre(0));
}

TEST(HeadSelectionTest, ExplicitListsAreCheckedByName) {
  SelectionRule rule;
  rule.criterion = Criterion::kExplicit;
  rule.heads = {{3, 1}, {}};
  EXPECT_THAT(select_heads(rule, {}, 2, 4)[0], ElementsAre(1, 3));
  rule.heads = {{}, {4}};
  EXPECT_THAT([&] { select_heads(rule, {}, 2, 4); },
              ::testing::ThrowsMessage<std::runtime_error>(HasSubstr("layer 1: head 4 of 4")));
  rule.heads = {{2, 2}, {}};
  EXPECT_THAT([&] { select_heads(rule, {}, 2, 4); },
              ::testing::ThrowsMessage<std::runtime_error>(HasSubstr("head 2 twice")));
  rule.heads = {{}};
  EXPECT_THAT([&] { select_heads(rule, {}, 2, 4); },
              ::testing::ThrowsMessage<std::runtime_error>(HasSubstr("must list 2 layers, got 1")));
}

TEST(HeadSelectionTest, NonFiniteScoresAreRefusedByLayerAndHead) {
  HeadScores scores = fixture();
  scores.entropy_nats[0][3] = std::nan("");
  EXPECT_THAT([&] { select_heads({}, scores, 1, 8); },
              ::testing::ThrowsMessage<std::runtime_error>(HasSubstr("layer 0, head 3")));
}

TEST(HeadSelectionTest, ReselectionHasHysteresisAroundBothThresholds) {
  // z-scores of the fixture: head 2 is at 1.124. With tau 1.1 it is above, but not by the margin of
  // 0.1.
  SelectionRule rule = threshold(1.1, 0.0);
  EXPECT_THAT(select_heads(rule, fixture(), 1, 8)[0], ElementsAre(2, 5));
  EXPECT_THAT(reselect_heads(rule, fixture(), {{5}}, 8)[0],
              ElementsAre(5));  // 2 does not enter yet
  EXPECT_THAT(reselect_heads(rule, fixture(), {{2, 5}}, 8)[0], ElementsAre(2, 5));  // 2 stays
  rule.tau = 1.2;  // 1.124 > 1.2 − 0.1: it stays though a fresh choice would not take it
  EXPECT_THAT(reselect_heads(rule, fixture(), {{2, 5}}, 8)[0], ElementsAre(2, 5));
  rule.tau = 1.3;
  EXPECT_THAT(reselect_heads(rule, fixture(), {{2, 5}}, 8)[0], ElementsAre(5));
  // Contribution of head 1 is 0.02168 as l2norm: enters below 0.9·η, leaves above 1.1·η.
  EXPECT_THAT(reselect_heads(threshold(9, .0235), fixture(), {{}}, 8)[0], ElementsAre(4));
  EXPECT_THAT(reselect_heads(threshold(9, .0242), fixture(), {{}}, 8)[0], ElementsAre(1, 4));
  EXPECT_THAT(reselect_heads(threshold(9, .0200), fixture(), {{1}}, 8)[0], ElementsAre(1, 4));
  EXPECT_THAT(reselect_heads(threshold(9, .0190), fixture(), {{1}}, 8)[0], ElementsAre(4));
}

TEST(HeadSelectionTest, ReportsShareAndReasons) {
  const auto sets = select_heads(threshold(1.0, .03), fixture(), 1, 8);
  EXPECT_DOUBLE_EQ(selected_ratio(sets, 8), 0.5);
  const auto why = reasons(threshold(1.0, .03), fixture())[0];
  EXPECT_EQ(why[0], Reason::kNone);
  EXPECT_EQ(why[1], Reason::kContribution);
  EXPECT_EQ(why[2], Reason::kEntropy);
}

// method.md §4.9: what is suggested chooses what it says, within 10–50 %.
TEST(HeadSelectionTest, NearestThresholdsChooseBetweenATenthAndAHalf) {
  for (const auto& [tau, eta] :
       {std::pair(9.0, 0.0), std::pair(-3.0, 0.0), std::pair(9.0, 2.0), std::pair(-1.0, 0.5)}) {
    const SelectionRule rule = threshold(tau, eta);
    const auto found = nearest_thresholds(rule, fixture());
    ASSERT_TRUE(found.has_value()) << tau << " " << eta;
    EXPECT_GE(found->ratio, 0.1);
    EXPECT_LE(found->ratio, 0.5);
    EXPECT_DOUBLE_EQ(
        selected_ratio(select_heads(threshold(found->tau, found->eta), fixture(), 1, 8), 8),
        found->ratio);
    const bool empty = chosen(rule).empty();
    EXPECT_EQ(found->tau < tau, empty);
    EXPECT_EQ(found->eta > eta, empty);
  }
}

TEST(HeadSelectionTest, HeadsThatAreAllAlikeHaveNoBetterThresholds) {
  HeadScores scores;
  scores.entropy_nats = scores.entropy_normalized = {{1, 1, 1, 1}};
  scores.importance = {{1, 1, 1, 1}};
  EXPECT_FALSE(nearest_thresholds(threshold(-1, 0), scores).has_value());
}

}  // namespace
}  // namespace dex::evaluate
