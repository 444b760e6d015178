#include "worker/train/watchdog.h"

#include <gtest/gtest.h>

#include <limits>

namespace dex::train {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
using Action = Watchdog::Action;

TEST(WatchdogTest, SkipsThenGoesBackOnceThenFails) {
  Watchdog watchdog({});
  EXPECT_EQ(watchdog.check(0, 2.0, 1.0).action, Action::kApply);
  EXPECT_EQ(watchdog.check(1, kNaN, 1.0).action, Action::kSkip);
  EXPECT_EQ(watchdog.check(2, 2.0, kNaN).action, Action::kSkip);
  const auto third = watchdog.check(3, kNaN, 1.0);
  EXPECT_EQ(third.action, Action::kRollback);
  EXPECT_EQ(third.code, "non_finite_loss");
  EXPECT_NE(third.message.find("step 3"), std::string::npos);
  watchdog.rolled_back();
  for (int step = 0; step < 2; ++step)
    EXPECT_EQ(watchdog.check(step, kNaN, 1.0).action, Action::kSkip);
  EXPECT_EQ(watchdog.check(2, kNaN, 1.0).action, Action::kFail);
  EXPECT_EQ(watchdog.state().skipped, 6);
}

TEST(WatchdogTest, AFiniteUpdateEndsTheRow) {
  Watchdog watchdog({});
  for (int step = 0; step < 20; ++step) {
    EXPECT_NE(watchdog.check(step, step % 3 == 2 ? 1.0 : kNaN, 1.0).action, Action::kRollback);
  }
}

TEST(WatchdogTest, DivergenceIsMeasuredAgainstTheMedianBeforeIt) {
  Watchdog watchdog({.loss_patience = 5});
  int64_t step = 0;
  for (; step < 30; ++step) EXPECT_EQ(watchdog.check(step, 2.0, 1.0).action, Action::kApply);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(watchdog.check(step++, 7.0, 1.0).action, Action::kApply);
  const auto verdict = watchdog.check(step, 7.0, 1.0);
  EXPECT_EQ(verdict.action, Action::kRollback);
  EXPECT_EQ(verdict.code, "loss_diverged");
  EXPECT_DOUBLE_EQ(verdict.limit, 6.0);
}

TEST(WatchdogTest, StateCarriesTheRowAndTheMedianOver) {
  Watchdog first({});
  first.check(0, kNaN, 1.0);
  first.check(1, kNaN, 1.0);
  Watchdog second({});
  second.restore(first.state());
  EXPECT_EQ(second.check(2, kNaN, 1.0).action, Action::kRollback);
}

}  // namespace
}  // namespace dex::train
