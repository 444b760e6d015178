// A job that is only checked (TrainerStart.hold): all that comes before its first update, then one
// on the longest rows to see what it takes, and an end as if it had been paused.
#include <gmock/gmock.h>

#include <optional>

#include "tests/unit/worker/train/job_fixture.h"
#include "tests/unit/worker/train_memory/failing_allocator.h"

namespace dex::train::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class HoldTest : public JobTest {
 protected:
  JobSpec held() const {
    JobSpec spec = this->spec("held");
    spec.hold = true;
    return spec;
  }
  // Why the attempt stopped; nothing: it published something.
  std::optional<StopReason> stop_of(const JobSpec& spec, Session& session) const {
    try {
      run(spec, session);
    } catch (const Stopped& stopped) {
      EXPECT_EQ(ending_of(stopped).exit, Exit::kStopped);
      EXPECT_EQ(ending_of(stopped).stopped, stopped.reason());
      return stopped.reason();
    }
    return std::nullopt;
  }
};

TEST_F(HoldTest, EverythingIsCheckedAndNothingTrained) {
  RecordingSession session;
  const JobSpec spec = held();
  EXPECT_EQ(stop_of(spec, session), StopReason::kPause);
  for (const Phase phase : {Phase::kValidating, Phase::kSelectingHeads, Phase::kProbing})
    EXPECT_THAT(session.phases, Contains(phase)) << name(phase);
  EXPECT_THAT(session.phases, Not(Contains(Phase::kTraining)));
  EXPECT_THAT(session.data("validation_complete"), SizeIs(1));
  EXPECT_THAT(session.data("head_selection_complete"), SizeIs(1));
  EXPECT_THAT(session.data("training_start"), IsEmpty()) << "it has not started";
  EXPECT_THAT(session.checkpoints, IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(spec.attempt_dir / "final"));
  EXPECT_EQ(session.last.step, 0);
}

TEST_F(HoldTest, ItSaysWhatAProbeWouldMeasure) {
  RecordingSession session, other;
  JobSpec probe = spec("probe");
  probe.probe_only = true;
  const Published published = run(probe, other);
  ASSERT_TRUE(published.memory_probe);
  const MemoryProbe& expected = *published.memory_probe;

  EXPECT_EQ(stop_of(held(), session), StopReason::kPause);
  const auto told = session.data("estimate_updated");
  ASSERT_EQ(told.size(), 1u);
  const json& data = told[0];
  EXPECT_EQ(data.at("stepTokens"), std::to_string(expected.step_tokens));
  EXPECT_EQ(data.at("longestRowTokens"), std::to_string(expected.longest_row_tokens));
  EXPECT_EQ(data.at("microBatchSize"), 2);
  EXPECT_EQ(data.at("maxSeqLength"), 64);
  EXPECT_EQ(data.at("totalSteps"), "6");
  EXPECT_GE(data.at("stepSeconds").get<double>(), 0);
  EXPECT_GT(std::stoll(data.at("peakMemoryBytes").get<std::string>()), 10 << 20);
  EXPECT_THAT(session.events.back().message, HasSubstr("the job has 6 updates"));
}

// What a start would stumble over is found before anybody waits for one.
TEST_F(HoldTest, AFaultOfTheJobIsFoundByTheCheck) {
  JobSpec spec = held();
  spec.validation_path.clear();
  spec.validation_split = 0;
  spec.early_stopping.enabled = true;
  const Failure failure = failure_of(spec);
  EXPECT_EQ(failure.exit(), Exit::kBadSpec);
  EXPECT_THAT(failure.what(), HasSubstr("early_stopping.enabled"));
}

TEST_F(HoldTest, WhoIsToldToStopMeanwhileStopsForThat) {
  RecordingSession session;
  bool told = false;
  session.script = [&](const Progress&) -> Command {
    if (told || session.phases.back() != Phase::kProbing) return {};
    told = true;
    return {Command::Kind::kStop, "", StopReason::kDrain};
  };
  EXPECT_EQ(stop_of(held(), session), StopReason::kDrain);
  EXPECT_THAT(session.data("estimate_updated"), IsEmpty());
}

// Unlike a probe, which answers for one setting: the job goes on with half of it.
TEST_F(HoldTest, OutOfMemoryIsTriedOnceMoreWithHalfTheMicroBatch) {
  FailingAllocator& allocator = FailingAllocator::installed();
  RecordingSession session;
  int polls = 0;
  session.script = [&](const Progress&) -> Command {
    if (session.phases.back() == Phase::kProbing && ++polls == 1) allocator.fail_at(1);
    return {};
  };
  try {
    run(held(), session);
    ADD_FAILURE() << "there was memory enough";
  } catch (const OutOfMemoryFailure& failure) {
    EXPECT_EQ(failure.post_mortem().micro_batch_size, 2);
    EXPECT_EQ(failure.post_mortem().retry_micro_batch_size, 1);
  }
  allocator.fail_at(0);
}

}  // namespace
}  // namespace dex::train::testing
