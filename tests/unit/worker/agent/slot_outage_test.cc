// Attempts whose scheduler does not answer, for a while or for longer than the orphan limit
// (jobs.md §4).
#include <gtest/gtest.h>

#include "services/base/process_lock.h"
#include "tests/support/eventually.h"
#include "tests/unit/worker/agent/slot_fixture.h"

namespace dex::agent {
namespace {

using Outage = support::FakeScheduler::Outage;
using Heard = support::FakeScheduler::Heard;

class SlotOutageTest : public SlotTest {};

TEST_F(SlotOutageTest, AnOutageOfTheSchedulerStopsNothing) {
  start();
  offer("wait");
  ASSERT_TRUE(wait_for_step(1));
  scheduler_.set_outage(Outage::kBefore);
  const auto before = scheduler_.heard().stored_beats.rbegin()->second.progress().step();
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return h.refused >= 15; }));
  scheduler_.set_outage(Outage::kNone);
  EXPECT_TRUE(wait_for_step(before + 5)) << "it trained on meanwhile";
  EXPECT_TRUE(scheduler_.heard().finishes.empty());
}

// Also one that is tried again: its own time, not that of the first try.
TEST_F(SlotOutageTest, EveryBeatTellsTheTimeAtWhichItIsSent) {
  const int64_t began_ms = clock_.now_ms();
  start();
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return !h.beats.empty(); }));
  EXPECT_GE(scheduler_.heard().beats[0].now_ms(), began_ms);
  scheduler_.set_outage(Outage::kAfter);  // heard, without an answer
  const size_t heard = scheduler_.heard().beats.size();
  const int64_t later_ms = clock_.now_ms();
  ASSERT_TRUE(scheduler_.wait([&](const Heard& h) { return h.beats.size() >= heard + 2; }));
  const int64_t told_ms = scheduler_.heard().beats[heard + 1].now_ms();
  EXPECT_GE(told_ms, later_ms);
  EXPECT_LE(told_ms, clock_.now_ms());
}

TEST_F(SlotOutageTest, TheOrphanLimitEndsAnOutageWithACheckpoint) {
  attempt_.orphan_limit_ms = 200;
  start();
  offer("wait");
  ASSERT_TRUE(wait_for_step(1));
  scheduler_.set_outage(Outage::kBefore);
  // The trainer ends while nobody answers; its last words are said when somebody does.
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return h.refused >= 40; }));
  scheduler_.set_outage(Outage::kNone);
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_RELEASE);
}

// The same outage twice, of more than 12 leases: unless told otherwise the job is given back, where
// the limit is 0 it trains on (jobs.md §4).
TEST_F(SlotOutageTest, TheOrphanLimitIsTwelveOfTheSchedulersLeases) {
  constexpr int64_t kLease_ms = 200;
  scheduler_.set_lease(kLease_ms);
  start();
  offer("wait");
  ASSERT_TRUE(wait_for_step(1));
  const int64_t began_ms = clock_.steady_ms();
  scheduler_.set_outage(Outage::kBefore);
  // Its trainer has ended: nobody holds the slot's lock any more.
  EXPECT_TRUE(
      support::eventually([this] { return base::lock_file(directory_ / "slot.lock").ok(); }));
  // Counted from the last beat that was answered, which a busy machine may have sent long before.
  EXPECT_GE(clock_.steady_ms() - began_ms, 6 * kLease_ms) << "a shorter silence stops nothing";
  scheduler_.set_outage(Outage::kNone);
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_RELEASE);
  EXPECT_GE(finish.checkpoint().step(), 1u) << "with a checkpoint";
}

TEST_F(SlotOutageTest, WithAnOrphanLimitOfNoughtAnyOutageIsOutlived) {
  constexpr int64_t kLease_ms = 200;
  attempt_.orphan_limit_ms = 0;
  scheduler_.set_lease(kLease_ms);
  start();
  offer("wait");
  ASSERT_TRUE(wait_for_step(1));
  const int64_t began_ms = clock_.steady_ms();
  scheduler_.set_outage(Outage::kBefore);
  ASSERT_TRUE(support::eventually([&] { return clock_.steady_ms() - began_ms > 15 * kLease_ms; }));
  const auto before = scheduler_.heard().stored_beats.rbegin()->second.progress().step();
  scheduler_.set_outage(Outage::kNone);
  EXPECT_TRUE(wait_for_step(before + 5)) << "it trained on meanwhile";
  EXPECT_TRUE(scheduler_.heard().finishes.empty());
}

}  // namespace
}  // namespace dex::agent
