#include "scheduler/core/public_state.h"

#include <gtest/gtest.h>

namespace dex::core {
namespace {

// The table of jobs.md §2, row by row.
TEST(PublicStateTest, FollowsTheTable) {
  const auto state = [](std::string_view stored, std::string_view want = "run",
                        v1::JobPhase phase = v1::JOB_PHASE_TRAINING, uint32_t step = 0,
                        std::string_view why = "") {
    return public_state({stored, want, phase, step, why});
  };
  EXPECT_EQ(state("DELAYED"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(state("READY"), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(state("RUNNING", "pause"), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(state("RUNNING", "run", v1::JOB_PHASE_VALIDATING), v1::JOB_STATE_VALIDATING_FILES);
  EXPECT_EQ(state("RUNNING", "run", v1::JOB_PHASE_VALIDATING, 17), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(state("RUNNING"), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(state("CANCELLING"), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(state("PAUSED"), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(state("SUCCEEDED"), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(state("FAILED"), v1::JOB_STATE_FAILED);
  EXPECT_EQ(state("CANCELLED"), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(state("CANCELLED", "run", v1::JOB_PHASE_TRAINING, 0, "deadline_exceeded"),
            v1::JOB_STATE_EXPIRED);
}

TEST(PublicStateTest, SaysWhyAJobWaits) {
  EXPECT_EQ(waiting_reason({"DELAYED", "run"}, true, false), v1::WAITING_REASON_RETRY_BACKOFF);
  EXPECT_EQ(waiting_reason({"READY", "run"}, true, false), v1::WAITING_REASON_CAPACITY);
  EXPECT_EQ(waiting_reason({"READY", "run"}, false, false), v1::WAITING_REASON_QUOTA);
  EXPECT_EQ(waiting_reason({"READY", "run"}, true, true), v1::WAITING_REASON_MODEL);
  EXPECT_EQ(waiting_reason({"READY", "run"}, false, true), v1::WAITING_REASON_MODEL);
  EXPECT_EQ(waiting_reason({"RUNNING", "run"}, true, false), v1::WAITING_REASON_UNSPECIFIED);
}

TEST(PublicStateTest, ErrorCodesSayWhoActs) {
  EXPECT_EQ(error_category("invalid_training_file"), "USER");
  EXPECT_EQ(error_category("out_of_memory"), "CAPACITY");
  EXPECT_EQ(error_category("poison_job"), "SYSTEM");
}

}  // namespace
}  // namespace dex::core
