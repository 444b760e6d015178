// When a job saves its state (api.md §12: C14): by updates, by the clock and on request, all in one
// run.
#include <gmock/gmock.h>

#include <map>
#include <vector>

#include "tests/unit/worker/train/job_fixture.h"

namespace dex::train::testing {
namespace {

// A millisecond a look, and what a test adds.
struct SetClock final : base::Clock {
  int64_t now_ms() const override { return 0; }
  int64_t steady_ms() const override { return ++ms; }
  mutable int64_t ms = 0;
};

class CheckpointTimesTest : public JobTest {
 protected:
  // After which of 40 updates a run has saved its state. The clock jumps an hour after the update
  // `jump`, and somebody asks for a checkpoint after the update `ask`; 0: never.
  std::vector<int64_t> saved(const std::string& attempt, int64_t every_steps, int64_t jump,
                             int64_t ask) {
    JobSpec spec = this->spec(attempt);
    spec.hyperparameters.max_steps = 40;
    spec.checkpoints.every_steps = every_steps;
    spec.checkpoints.every_seconds = 3600;
    SetClock clock;
    RecordingSession session;
    bool jumped = false, asked = false;
    session.script = [&](const Progress& progress) -> Command {
      if (jump > 0 && !jumped && progress.step >= jump) {
        jumped = true;
        clock.ms += 3'600'000;
      }
      if (ask == 0 || asked || progress.step < ask) return {};
      asked = true;
      return {Command::Kind::kCheckpoint, "request-1", {}};
    };
    std::filesystem::create_directories(spec.attempt_dir);
    run_job(spec, session, clock);
    std::vector<int64_t> steps;
    for (const auto& each : session.checkpoints) {
      steps.push_back(each.step);
      answers_[attempt] += each.request == "request-1" ? 1 : 0;
    }
    return steps;
  }

  std::map<std::string, int> answers_;  // to the request, by attempt
};

TEST_F(CheckpointTimesTest, ByUpdatesByTheClockAndOnRequestInOneRun) {
  EXPECT_THAT(saved("steps", 15, 0, 0), ::testing::ElementsAre(15, 30, 40));
  // The clock and the request are seen at the end of the update under way.
  const auto all = saved("all", 15, 20, 34);
  ASSERT_EQ(all.size(), 5U) << ::testing::PrintToString(all);
  EXPECT_EQ(all[0], 15);
  EXPECT_THAT(all[1], ::testing::AllOf(::testing::Ge(20), ::testing::Le(21))) << "by the clock";
  EXPECT_EQ(all[2], 30);
  EXPECT_THAT(all[3], ::testing::AllOf(::testing::Ge(34), ::testing::Le(35))) << "on request";
  EXPECT_EQ(all[4], 40);
  EXPECT_EQ(answers_["steps"], 0);
  EXPECT_EQ(answers_["all"], 1);
}

}  // namespace
}  // namespace dex::train::testing
