#include "client/cli/study_learning.h"

#include <gmock/gmock.h>

#include <cmath>
#include <string>

namespace dex::cli {
namespace {

v1::FineTuningEvent started_at(uint32_t step) {
  v1::FineTuningEvent event;
  event.mutable_training_start()->set_resumed_from_step(step);
  return event;
}

v1::FineTuningEvent updated(uint32_t step, double loss) {
  v1::FineTuningEvent event;
  event.mutable_metrics()->set_step(step);
  event.mutable_metrics()->set_train_loss(loss);
  return event;
}

v1::FineTuningEvent tripped(const std::string& action, uint32_t step, uint32_t back_to = 0) {
  v1::FineTuningEvent event;
  event.mutable_watchdog()->set_action(action);
  event.mutable_watchdog()->set_step(step);
  event.mutable_watchdog()->set_rolled_back_to(back_to);
  return event;
}

std::vector<double> losses_after(const std::vector<v1::FineTuningEvent>& events) {
  LossCurve curve;
  for (const auto& event : events) curve.take(event);
  return curve.losses();
}

TEST(LossCurveTest, EveryUpdateHasOneLoss) {
  auto by_layer = updated(2, 3.5);  // an evaluation repeats the point of its step
  by_layer.mutable_metrics()->add_lambda(0.1F);
  EXPECT_THAT(
      losses_after({started_at(0), updated(1, 4), updated(2, 3.5), by_layer, updated(3, 3)}),
      testing::ElementsAre(4, 3.5, 3));
}

TEST(LossCurveTest, WhatIsDoneAgainReplacesWhatWasThere) {
  const std::vector<v1::FineTuningEvent> attempts = {started_at(0), updated(1, 4), updated(2, 5),
                                                     updated(3, 6), started_at(1), updated(2, 3)};
  EXPECT_THAT(losses_after(attempts), testing::ElementsAre(4, 3));
  const std::vector<v1::FineTuningEvent> rolled_back = {updated(1, 4), updated(2, 5), updated(3, 6),
                                                        tripped("ROLLBACK", 3, 1), updated(2, 3)};
  EXPECT_THAT(losses_after(rolled_back), testing::ElementsAre(4, 3));
}

TEST(LossCurveTest, SkippedUpdatesHaveNone) {
  const auto losses =
      losses_after({updated(1, 4), tripped("SKIP", 1), updated(2, 4), updated(3, 3)});
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_EQ(losses[0], 4);
  EXPECT_TRUE(std::isnan(losses[1])) << "its event repeats the loss before";
  EXPECT_EQ(losses[2], 3);
}

TEST(LossCurveTest, APartOfTheUpdatesIsNoCurve) {
  EXPECT_TRUE(losses_after({updated(1, 4), updated(3, 3)}).empty());
  EXPECT_TRUE(losses_after({updated(2, 4), updated(3, 3)}).empty());
  EXPECT_TRUE(losses_after({}).empty());
}

TEST(StepsToLossTest, FollowTheRunningAverage) {
  const std::vector<double> losses{4, 2, std::nan(""), 2, 2};
  // 4 · 3.96 · – · 3.9208 · 3.882384
  EXPECT_NEAR(*final_average_loss(losses), 3.882384, 1e-12);
  EXPECT_EQ(steps_to_loss(losses, 3.95), 3);
  EXPECT_EQ(steps_to_loss(losses, 5.0), 0);
  EXPECT_FALSE(steps_to_loss(losses, 3).has_value());
  EXPECT_FALSE(final_average_loss({}).has_value());
}

}  // namespace
}  // namespace dex::cli
