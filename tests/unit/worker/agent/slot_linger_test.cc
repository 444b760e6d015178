// A job has ended when its result is there, whatever its process does (api.md §3, and §12: C19).
#include "tests/unit/worker/agent/slot_fixture.h"

namespace dex::agent {
namespace {

// By whether the trainer still holds its end of the channel.
class SlotLingerTest : public SlotTest, public testing::WithParamInterface<const char*> {};

TEST_P(SlotLingerTest, ATrainerThatDoesNotExitAfterItsResultIsKilledAndTheResultCounts) {
  attempt_.stop.kill_grace_ms = 200;
  start();
  offer(GetParam());
  const auto finish = finished();
  EXPECT_EQ(iv1::Outcome_Name(finish.outcome()), iv1::Outcome_Name(iv1::OUTCOME_SUCCESS));
  EXPECT_EQ(finish.result().uri(), std::string(kAttemptDir) + "/final");
  stop();
  expect_slot_free();
}

INSTANTIATE_TEST_SUITE_P(Ends, SlotLingerTest, testing::Values("lingers", "lingers-deaf"),
                         [](const auto& info) {
                           return info.param == std::string("lingers") ? "Open" : "Closed";
                         });

}  // namespace
}  // namespace dex::agent
