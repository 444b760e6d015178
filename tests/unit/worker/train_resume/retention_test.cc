// Which checkpoints of a job stay while it trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/unit/worker/train/job_fixture.h"

namespace dex::train::testing {
namespace {

using ::testing::ElementsAre;
namespace fs = std::filesystem;

// A minute passes at each look, so every checkpoint is old when the next one comes.
class MinuteClock final : public base::Clock {
 public:
  int64_t now_ms() const override { return 0; }
  int64_t steady_ms() const override { return ms_ += 61'000; }

 private:
  mutable int64_t ms_ = 0;
};

class RetentionTest : public JobTest {
 protected:
  // 40 updates with a checkpoint every 4; `script` as in RecordingSession.
  std::set<std::string> kept_after(const JobSpec& spec, RecordingSession& session) const {
    fs::create_directories(spec.attempt_dir);
    run_job(spec, session, minutes_);
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(spec.attempt_dir)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("step-")) names.insert(name);
    }
    return names;
  }
  JobSpec long_spec() const {
    JobSpec spec = this->spec("kept");
    spec.hyperparameters.max_steps = 40;
    spec.evaluation.every_steps = 40;
    spec.checkpoints.every_steps = 4;
    spec.checkpoints.every_seconds = 1e12;
    spec.checkpoints.keep_best = false;
    return spec;
  }
  static Command pointers(const fs::path& acknowledged, const fs::path& offered) {
    Command command;
    command.kind = Command::Kind::kAcknowledged;
    command.acknowledged = acknowledged.string();
    command.offered = offered.string();
    return command;
  }

  MinuteClock minutes_;
};

// The scheduler is away from step 9 on: it points to step 4, and perhaps to step 8.
TEST_F(RetentionTest, WhatTheJobMayPointToOutlivesAnOutage) {
  const JobSpec spec = long_spec();
  RecordingSession session;
  bool told = false;
  session.script = [&](const Progress& progress) -> Command {
    if (told || progress.step < 9) return {};
    told = true;
    return pointers(spec.attempt_dir / "step-4", spec.attempt_dir / "step-8");
  };
  EXPECT_THAT(kept_after(spec, session), ElementsAre("step-36", "step-4", "step-40", "step-8"));
}

TEST_F(RetentionTest, ItGoesWhenTheJobPointsToANewerOne) {
  const JobSpec spec = long_spec();
  RecordingSession session;
  int told = 0;
  session.script = [&](const Progress& progress) -> Command {
    if (told == 0 && progress.step >= 9) {
      ++told;
      return pointers(spec.attempt_dir / "step-4", "");
    }
    if (told == 1 && progress.step >= 25) {
      ++told;
      return pointers(spec.attempt_dir / "step-20", "");
    }
    return {};
  };
  EXPECT_THAT(kept_after(spec, session), ElementsAre("step-20", "step-36", "step-40"));
}

TEST_F(RetentionTest, WithoutWordOfItOnlyTheLastStay) {
  const JobSpec spec = long_spec();
  RecordingSession session;
  EXPECT_THAT(kept_after(spec, session), ElementsAre("step-36", "step-40"));
}

}  // namespace
}  // namespace dex::train::testing
