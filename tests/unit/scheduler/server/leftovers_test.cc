// Which attempt directories of a job may go (jobs.md §7), and what goes with a job.

#include "scheduler/server/leftovers.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "scheduler/server/job_id.h"
#include "services/base/clock.h"
#include "services/base/files.h"
#include "services/base/ids.h"
#include "services/base/random.h"
#include "tests/support/temporary_directory.h"

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

// Retention comes to jobs of every kind, also to those that nobody sees as jobs.
TEST(JobArtefactsTest, TheFolderOfEveryKindOfJobGoes) {
  const support::TemporaryDirectory directory;
  const DataLayout layout(directory.path());
  const base::SystemClock clock;
  base::SystemRandom random;
  base::UlidGenerator ids(clock, random);
  for (const char* prefix : {"ftjob-", "eval-", "heads-", "probe-", kImportPrefix, kExportPrefix}) {
    auto job = ended("FAILED");
    job.id = ids.make(prefix);
    const auto folder = directory.path() / DataLayout::job(job.tenant, job.id);
    std::filesystem::create_directories(folder / "attempt-1");
    const auto status = remove_job_artefacts(layout, job, "");
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_FALSE(std::filesystem::exists(folder)) << job.id;
  }
  auto none = ended("FAILED");
  none.id = "..";
  EXPECT_FALSE(remove_job_artefacts(layout, none, "").ok());
}

TEST(JobArtefactsTest, OfWhatIsPublishedTheFolderAndTheSpecStay) {
  const support::TemporaryDirectory directory;
  const DataLayout layout(directory.path());
  const base::SystemClock clock;
  base::SystemRandom random;
  base::UlidGenerator ids(clock, random);
  auto job = ended("SUCCEEDED");
  job.id = ids.make("ftjob-");
  job.spec = "its spec";
  const std::string inside = DataLayout::job(job.tenant, job.id) + "/attempt-7";
  const auto folder = directory.path() / inside;
  std::filesystem::create_directories(folder / "final");
  std::filesystem::create_directories(folder / "step-3/final");
  EXPECT_FALSE(remove_job_artefacts(layout, job, inside + "/step-3/final").ok())
      << "no trainer publishes there: rather nothing goes than what somebody serves";
  EXPECT_TRUE(std::filesystem::exists(folder / "step-3/final"));
  for (int time = 0; time < 2; ++time) {
    const auto status = remove_job_artefacts(layout, job, inside + "/final");
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(std::filesystem::exists(folder / "final"));
    EXPECT_FALSE(std::filesystem::exists(folder / "step-3"));
    const auto spec = base::read_file(layout.kept_spec(job.tenant, job.id), 100);
    ASSERT_TRUE(spec.ok()) << spec.status().to_string();
    EXPECT_EQ(*spec, "its spec");
  }
}

}  // namespace
}  // namespace dex::server
