// Where a job goes back to when its loss has risen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "services/base/sha256.h"
#include "tests/unit/worker/train/job_fixture.h"

namespace dex::train::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class WayBackTest : public JobTest {
 protected:
  // Rates so small that the loss stays where it is, and a limit of half the median: from the 11th
  // update on (a median needs ten) every loss is above it, and the watchdog trips at the fifth.
  JobSpec rising(const std::string& attempt) const {
    JobSpec spec = this->spec(attempt);
    spec.hyperparameters.max_steps = 40;
    spec.hyperparameters.learning_rate = spec.hyperparameters.branch_learning_rate =
        spec.hyperparameters.lambda_learning_rate = 1e-7;
    spec.evaluation.every_steps = 40;
    spec.checkpoints.every_steps = 3;
    spec.watchdog.loss_factor = 0.5;
    spec.watchdog.loss_patience = 5;
    return spec;
  }
  static nlohmann::json watchdog_in(const CheckpointReport& checkpoint) {
    return nlohmann::json::parse(bytes_of(fs::path(checkpoint.path) / "state.json")).at("watchdog");
  }
};

// Checkpoints are 3, 6, 9, 12; losses are above the limit from update 10 on, so 12 lies in the
// rise.
TEST_F(WayBackTest, IsTheNewestCheckpointBeforeTheRise) {
  RecordingSession session;
  const Failure failure = failure_of(rising("rising"), session);
  EXPECT_EQ(failure.exit(), Exit::kNonFinite);
  EXPECT_EQ(failure.code(), "loss_diverged");
  EXPECT_THAT(failure.what(), HasSubstr("; last good checkpoint: step-9-2"));
  const auto trips = session.data("watchdog");
  ASSERT_EQ(trips.size(), 2U);
  EXPECT_EQ(trips[0].at("action"), "ROLLBACK");
  EXPECT_EQ(trips[0].at("step"), 14);
  EXPECT_EQ(trips[0].at("rolledBackTo"), 9);
  EXPECT_EQ(trips[1].at("action"), "FAIL");
}

// The job may point to step 12 of before when training comes by again.
TEST_F(WayBackTest, CheckpointsOfTheRiseAreNotWrittenOver) {
  RecordingSession session;
  failure_of(rising("rising"), session);
  ASSERT_EQ(session.checkpoints.size(), 6U);
  const CheckpointReport& before = session.checkpoints[3];
  const CheckpointReport& again = session.checkpoints[5];
  EXPECT_EQ(before.step, 12);
  EXPECT_EQ(again.step, 12);
  EXPECT_NE(before.path, again.path);
  for (const CheckpointReport& each : session.checkpoints) {
    EXPECT_EQ(*base::sha256_file(fs::path(each.path) / "MANIFEST.json"), each.manifest_sha256)
        << each.path;
  }
  EXPECT_EQ(watchdog_in(before).at("rollbacks"), 0);
  EXPECT_EQ(watchdog_in(again).at("rollbacks"), 1);
}

// A worker that is lost, or drained, right after it: the job must not point into the rise any more,
// and its one way back stays spent.
TEST_F(WayBackTest, IsWhereAnotherAttemptGoesOn) {
  RecordingSession session;
  bool told = false;
  session.script = [&](const Progress&) -> Command {
    if (told || session.data("watchdog").empty()) return {};
    told = true;
    return {Command::Kind::kStop, "", StopReason::kDrain};
  };
  EXPECT_THROW(run(rising("first"), session), Stopped);
  ASSERT_EQ(session.checkpoints.size(), 5U);
  EXPECT_EQ(session.checkpoints[3].step, 12);
  const CheckpointReport& offered = session.checkpoints.back();
  EXPECT_EQ(offered.step, 9);
  EXPECT_EQ(fs::path(offered.path).filename().string(), "step-9-2");
  EXPECT_EQ(watchdog_in(offered).at("rollbacks"), 1);

  JobSpec spec = rising("second");
  spec.attempt = 2;
  spec.checkpoint_dir = offered.path;
  spec.checkpoint_manifest_sha256 = offered.manifest_sha256;
  RecordingSession next;
  const Failure failure = failure_of(spec, next);
  EXPECT_THAT(failure.what(), HasSubstr("; last good checkpoint: step-9-2"));
  ASSERT_EQ(next.data("watchdog").size(), 1U);
  EXPECT_EQ(next.data("watchdog")[0].at("action"), "FAIL");
}

// Whoever starts a trainer alone may have moved the folder that it goes on from.
TEST_F(WayBackTest, MayHaveAnyName) {
  RecordingSession first;
  failure_of(rising("first"), first);
  ASSERT_GE(first.checkpoints.size(), 3U);
  ASSERT_EQ(first.checkpoints[2].step, 9);
  fs::copy(first.checkpoints[2].path, directory_ / "backup");
  JobSpec spec = rising("second");
  spec.checkpoint_dir = directory_ / "backup" / "";
  RecordingSession session;
  const Failure failure = failure_of(spec, session);
  EXPECT_EQ(failure.code(), "loss_diverged");
  const auto trips = session.data("watchdog");
  ASSERT_EQ(trips.size(), 2U);
  EXPECT_EQ(trips[0].at("action"), "ROLLBACK");
  EXPECT_EQ(trips[0].at("rolledBackTo"), 9);
}

// Of an attempt that was resumed in the middle of a rise nothing before it is known.
TEST_F(WayBackTest, FromWithinARiseThereIsNone) {
  RecordingSession first;
  failure_of(rising("first"), first);
  ASSERT_GE(first.checkpoints.size(), 4U);
  JobSpec spec = rising("second");
  spec.attempt = 2;
  spec.checkpoint_dir = first.checkpoints[3].path;
  EXPECT_EQ(watchdog_in(first.checkpoints[3]).at("above_in_row"), 2);
  RecordingSession session;
  const Failure failure = failure_of(spec, session);
  EXPECT_EQ(failure.code(), "loss_diverged");
  EXPECT_THAT(failure.what(), HasSubstr("; there is no checkpoint to go back to"));
  EXPECT_EQ(session.data("watchdog").at(0).at("action"), "FAIL");
}

}  // namespace
}  // namespace dex::train::testing
