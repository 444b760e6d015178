// A worker that is started for one job (dex-worker --once) and ends by itself.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>

#include "tests/unit/worker/agent/slot_fixture.h"

namespace dex::agent {
namespace {

using Heard = support::FakeScheduler::Heard;

class SlotOnceTest : public SlotTest {
 protected:
  SlotOnceTest() { once_ = true; }
  // By itself: nothing has asked it to stop.
  bool returned() {
    return returned_.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  }
};

TEST_F(SlotOnceTest, ItsSecondJobIsSomebodyElses) {
  offer("go");
  offer("go");
  start();
  ASSERT_TRUE(returned());
  const Heard heard = scheduler_.heard();
  ASSERT_EQ(heard.finishes.size(), 1);
  EXPECT_EQ(heard.finishes[0].outcome(), iv1::OUTCOME_SUCCESS);
  std::set<std::string> claims;  // a claim that is repeated is one
  for (const auto& claim : heard.claims) claims.insert(claim.claim_id());
  EXPECT_EQ(claims.size(), 1);
  expect_slot_free();
}

TEST_F(SlotOnceTest, AJobThatFailsIsItsJobToo) {
  offer("crash");
  offer("go");
  start();
  ASSERT_TRUE(returned());
  ASSERT_EQ(scheduler_.heard().finishes.size(), 1);
  EXPECT_NE(scheduler_.heard().finishes[0].outcome(), iv1::OUTCOME_SUCCESS);
}

TEST_F(SlotOnceTest, WithoutAJobItWaitsNoLongerThanItIsTold) {
  once_idle_ms_ = 50;
  start();
  EXPECT_TRUE(returned());
  for (const auto& claim : scheduler_.heard().claims) EXPECT_LE(claim.wait_ms(), 50);
  EXPECT_TRUE(scheduler_.heard().finishes.empty());
}

// Granted, and the answer lost: its job is done, not left to the end of a lease.
TEST_F(SlotOnceTest, AClaimThatNobodyAnsweredIsNoIdleness) {
  once_idle_ms_ = 2'000;
  start();
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return !h.claims.empty(); }));
  scheduler_.set_outage(support::FakeScheduler::Outage::kAfter);
  offer("go");
  // A claim each 20 ms: longer than it may be idle.
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return h.claims.size() > 120; }));
  scheduler_.set_outage(support::FakeScheduler::Outage::kNone);
  ASSERT_TRUE(returned());
  ASSERT_EQ(scheduler_.heard().finishes.size(), 1);
  EXPECT_EQ(scheduler_.heard().finishes[0].outcome(), iv1::OUTCOME_SUCCESS);
}

}  // namespace
}  // namespace dex::agent
