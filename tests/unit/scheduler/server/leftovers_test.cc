// Which attempt directories of a job may go (jobs.md §7).

#include "scheduler/server/leftovers.h"

#include <gmock/gmock.h>

namespace dex::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kEnd_ms = 1'764'000'000'000;

store::JobRecord ended(const std::string& state) {
  store::JobRecord job;
  job.id = "ftjob-1";
  job.tenant = "default";
  job.state = state;
  job.finished_ms = kEnd_ms;
  return job;
}
const std::vector<std::string> kAttempts = {"attempt-1", "attempt-12", "attempt-2"};
constexpr int64_t kLater_ms = kEnd_ms + kLeftoverAge_ms;

TEST(NeedlessAttemptsTest, WhatIsPublishedAndTheLastCheckpointStay) {
  auto job = ended("SUCCEEDED");
  job.result_uri = "jobs/default/ftjob-1/attempt-2/final";
  EXPECT_THAT(needless_attempts(job, kAttempts, kLater_ms), ElementsAre("attempt-1", "attempt-12"));
  job.checkpoint.uri = "jobs/default/ftjob-1/attempt-1/step-80";
  EXPECT_THAT(needless_attempts(job, kAttempts, kLater_ms), ElementsAre("attempt-12"))
      << "attempt-1 is not attempt-12";
}

TEST(NeedlessAttemptsTest, AFailedJobKeepsWhatItCouldGoOnFrom) {
  auto job = ended("FAILED");
  EXPECT_EQ(needless_attempts(job, kAttempts, kLater_ms), kAttempts);
  job.checkpoint.uri = "jobs/default/ftjob-1/attempt-2/step-80";
  EXPECT_THAT(needless_attempts(job, kAttempts, kLater_ms), ElementsAre("attempt-1", "attempt-12"));
  EXPECT_EQ(needless_attempts(ended("CANCELLED"), kAttempts, kLater_ms), kAttempts);
}

TEST(NeedlessAttemptsTest, NothingGoesWithinADayOfTheEnd) {
  EXPECT_THAT(needless_attempts(ended("FAILED"), kAttempts, kLater_ms - 1), IsEmpty());
}

TEST(NeedlessAttemptsTest, ALiveJobKeepsAll) {
  for (const char* state : {"DELAYED", "READY", "RUNNING", "CANCELLING", "PAUSED"})
    EXPECT_THAT(needless_attempts(ended(state), kAttempts, kLater_ms), IsEmpty()) << state;
  auto unclear = ended("FAILED");
  unclear.finished_ms = 0;
  EXPECT_THAT(needless_attempts(unclear, kAttempts, kLater_ms), IsEmpty());
}

TEST(NeedlessAttemptsTest, APointerOfAnotherJobProtectsNothing) {
  auto job = ended("FAILED");
  job.checkpoint.uri = "jobs/default/ftjob-2/attempt-1/step-80";
  EXPECT_EQ(needless_attempts(job, kAttempts, kLater_ms), kAttempts);
}

}  // namespace
}  // namespace dex::server
