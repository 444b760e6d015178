#include "worker/agent/stop_sequence.h"

#include <gtest/gtest.h>

namespace dex::agent {
namespace {

constexpr StopSequence::Options kOptions{.stop_grace_ms = 1000, .kill_grace_ms = 100};

std::string pushes(StopSequence& stop, Order order, int64_t now_ms) {
  const auto due = stop.due(order, now_ms);
  return std::string(due.frame ? "frame " : "") + (due.sigterm ? "term " : "") +
         (due.sigkill ? "kill" : "");
}

TEST(StopSequenceTest, NothingWithoutAnOrder) {
  StopSequence stop(kOptions);
  EXPECT_EQ(pushes(stop, Order::kNone, 1'000'000), "");
}

TEST(StopSequenceTest, CancelPushesAtOnceThenKills) {
  StopSequence stop(kOptions);
  EXPECT_EQ(pushes(stop, Order::kCancel, 50), "frame term ");
  EXPECT_EQ(pushes(stop, Order::kCancel, 149), "");
  EXPECT_EQ(pushes(stop, Order::kCancel, 150), "kill");
  EXPECT_EQ(pushes(stop, Order::kCancel, 151), "") << "once";
}

TEST(StopSequenceTest, DrainLeavesTimeForACheckpoint) {
  StopSequence stop(kOptions);
  EXPECT_EQ(stop.due(Order::kDrain, 0).grace_ms, 1100);
  EXPECT_EQ(pushes(stop, Order::kDrain, 999), "");
  EXPECT_EQ(pushes(stop, Order::kDrain, 1000), "term ");
  EXPECT_EQ(pushes(stop, Order::kDrain, 1099), "");
  EXPECT_EQ(pushes(stop, Order::kDrain, 1100), "kill");
}

TEST(StopSequenceTest, AGraverOrderStartsItsOwnSequenceALighterOneDoesNot) {
  StopSequence stop(kOptions);
  EXPECT_EQ(pushes(stop, Order::kPause, 0), "frame ");
  EXPECT_EQ(pushes(stop, Order::kDrain, 10), "");
  EXPECT_EQ(pushes(stop, Order::kLost, 20), "frame term ");
  EXPECT_EQ(pushes(stop, Order::kLost, 120), "kill");
}

}  // namespace
}  // namespace dex::agent
