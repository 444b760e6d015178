// Jobs whose gates ask for tasks: the evaluator follows the trainer, and what it finds decides what
// becomes of the job. The fake one finds the adapter's loss 0.5 (0.25 to 0.75) below the base's.
#include <gmock/gmock.h>

#include <fstream>

#include "services/base/sha256.h"
#include "tests/unit/worker/agent/slot_fixture.h"
#include "worker/agent/gate_checkpoint.h"

namespace dex::agent {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
using Heard = support::FakeScheduler::Heard;
using v1::Gate;

constexpr const char* kBefore = "jobs/default/ftjob-1/attempt-4";  // an attempt that was killed

class SlotGatesTest : public SlotTest {
 protected:
  // A job with one gate: the loss at most so much above the base's, surely. `evaluator` is how the
  // fake one behaves.
  static iv1::ClaimedJob gated(const std::string& evaluator, double threshold,
                               Gate::OnFail on_fail = Gate::ON_FAIL_BLOCK_ALIAS) {
    iv1::ClaimedJob job;
    job.set_job_id("ftjob-1");
    job.set_epoch(5);
    job.set_attempt(2);
    job.set_attempt_dir(kAttemptDir);
    job.set_adapter_id("ft:tiny:default::01");
    job.mutable_spec()->set_model("tiny");
    job.mutable_spec()->set_suffix("success");
    job.mutable_training_input()->set_path("files/a.jsonl");
    auto& gate = *job.mutable_spec()->add_gates();
    gate.set_name("better");
    gate.set_task("perplexity");
    gate.set_metric("loss");
    gate.set_against(Gate::AGAINST_BASE);
    gate.set_op(Gate::OP_LE);
    gate.set_threshold(threshold);
    gate.set_use(Gate::USE_BOUND);
    gate.set_on_fail(on_fail);
    gate.mutable_evaluation()->mutable_perplexity()->set_file("file-1");
    auto& file = *job.add_evaluation_files();
    file.set_file("file-1");
    file.set_path("files/g.raw");
    file.set_filename(evaluator);
    return job;
  }
  iv1::FinishRequest finish_of(const iv1::ClaimedJob& job) {
    start();
    scheduler_.offer(job);
    return finished();
  }
  // The events of one type that the scheduler has.
  std::vector<v1::FineTuningEvent> events(const std::string& type) {
    std::vector<v1::FineTuningEvent> found;
    for (const auto& [seq, beat] : scheduler_.heard().stored_beats) {
      for (const auto& event : beat.events()) {
        if (event.type() == type) found.push_back(event);
      }
    }
    return found;
  }
  // What a killed attempt has left: a trained adapter, and one task that is measured. `damaged`:
  // the adapter's bytes are others than it wrote.
  iv1::CheckpointRef left_behind(bool damaged = false) {
    const auto attempt = directory_ / kBefore;
    std::filesystem::create_directories(attempt / "final");
    std::ofstream(attempt / "final/adapter.bin") << (damaged ? "other weights" : "weights");
    const std::string manifest = R"({"adapter.bin": ")" + base::sha256_hex("weights") + "\"}\n";
    std::ofstream(attempt / "final/checksums.json") << manifest;
    std::ofstream(attempt / "head_selection.json") << "[]";
    iv1::TrainedState state;
    state.mutable_result()->set_uri(std::string(kBefore) + "/final");
    state.mutable_result()->set_manifest_sha256(base::sha256_hex(manifest));
    state.mutable_result()->set_promotable(true);
    state.mutable_result()->set_trained_tokens(1234);
    auto& own = *state.mutable_result()->add_gate_results();
    own.set_gate("held_out.loss");
    own.set_passed(true);
    state.mutable_progress()->set_step(7);
    state.mutable_evaluation()->set_uri(std::string(kBefore) + "/gates/step-1");
    state.mutable_evaluation()->set_manifest_sha256("cc");
    state.mutable_evaluation()->set_step(1);
    const auto kept = keep_trained(attempt, state, paths_);
    EXPECT_TRUE(kept.ok()) << kept.status().to_string();
    return kept.ok() ? *kept : iv1::CheckpointRef();
  }
};

TEST_F(SlotGatesTest, AreMeasuredBeforeTheResultIsReported) {
  const auto finish = finish_of(gated("measured", -0.25));
  ASSERT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_EQ(finish.result().uri(), std::string(kAttemptDir) + "/final");
  ASSERT_EQ(finish.result().gate_results_size(), 1);
  const auto& result = finish.result().gate_results(0);
  EXPECT_EQ(result.gate(), "better");
  EXPECT_TRUE(result.passed());
  EXPECT_EQ(result.value(), -0.5);
  EXPECT_EQ(result.low(), -0.75);
  EXPECT_EQ(result.high(), -0.25);
  EXPECT_EQ(result.n(), 8);
  EXPECT_TRUE(!finish.result().has_promotable() || finish.result().promotable());
  const auto told = events("gate_result");
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].message(),
            "gate better passed: perplexity.loss - base <= -0.25, high end; -0.5 (-0.75 to -0.25) "
            "over 8 rows");
  EXPECT_EQ(told[0].attempt(), 2u);
  EXPECT_EQ(told[0].gate_result().value(), -0.5);
  // The training's figures stay, and the job points to what is done.
  EXPECT_EQ(finish.progress().step(), 3u);
  EXPECT_EQ(finish.progress().trained_tokens(), 300);
  EXPECT_EQ(finish.checkpoint().uri(), std::string(kAttemptDir) + "/gates-1");
  EXPECT_EQ(finish.checkpoint().step(), 3u);
  EXPECT_TRUE(std::filesystem::exists(directory_ / kAttemptDir / "trainer.log"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / kAttemptDir / "evaluator.log"));
}

TEST_F(SlotGatesTest, OneThatHasNotPassedBlocksThePromotion) {
  const auto finish = finish_of(gated("measured", -0.3));
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_FALSE(finish.result().gate_results(0).passed());
  EXPECT_TRUE(finish.result().has_promotable());
  EXPECT_FALSE(finish.result().promotable());
  EXPECT_EQ(events("gate_result").at(0).level(), v1::FineTuningEvent::LEVEL_WARN);
}

TEST_F(SlotGatesTest, WarnChangesNothingButTheEvent) {
  const auto finish = finish_of(gated("measured", -0.3, Gate::ON_FAIL_WARN));
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS);
  EXPECT_FALSE(finish.result().gate_results(0).passed());
  EXPECT_TRUE(!finish.result().has_promotable() || finish.result().promotable());
  EXPECT_EQ(events("gate_result").at(0).level(), v1::FineTuningEvent::LEVEL_WARN);
}

TEST_F(SlotGatesTest, FailJobPublishesNothing) {
  const auto finish = finish_of(gated("measured", -0.3, Gate::ON_FAIL_FAIL_JOB));
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_FAIL_FINAL);
  EXPECT_EQ(finish.code(), "gate_failed");
  EXPECT_EQ(finish.param(), "gates");
  EXPECT_THAT(finish.message(), StartsWith("gate better not passed: "));
  EXPECT_THAT(finish.message(), EndsWith(". Nothing is published"));
  EXPECT_FALSE(finish.has_result());
}

class SlotOtherAdapterTest : public SlotGatesTest {
 protected:
  static constexpr const char* kOther = "ft:tiny:default:old:00";

  // A job whose gate is against another adapter, which is on the disk as long as `there`.
  iv1::ClaimedJob against_other(const std::string& evaluator, double threshold, bool there = true,
                                Gate::Against against = Gate::AGAINST_ADAPTER) {
    auto job = gated(evaluator, threshold);
    job.mutable_spec()->mutable_gates(0)->set_against(against);
    job.mutable_spec()->mutable_gates(0)->set_adapter(kOther);
    auto& other = *job.add_evaluated_adapters();
    other.set_id(kOther);
    other.set_path("jobs/default/ftjob-0/final");
    other.set_content_sha256("dd");
    if (there) std::filesystem::create_directories(directory_ / other.path());
    return job;
  }
};

TEST_F(SlotOtherAdapterTest, IsMeasuredBesideThemAndComparedByItem) {
  const auto finish = finish_of(against_other("pairs", -0.25));
  ASSERT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  const auto& result = finish.result().gate_results(0);
  EXPECT_EQ(result.value(), -0.25) << result.not_measured();
  EXPECT_EQ(result.low(), -0.25);
  EXPECT_EQ(result.high(), -0.25);
  EXPECT_EQ(result.n(), 8);
  EXPECT_TRUE(result.passed());
  EXPECT_EQ(events("gate_result").at(0).message(),
            "gate better passed: perplexity.loss - ft:tiny:default:old:00 <= -0.25, high end; "
            "-0.25 (-0.25 to -0.25) over 8 rows");
}

// The base is half a nat worse, which would do; the control is not that far behind.
TEST_F(SlotOtherAdapterTest, TheDifferenceToTheControlDecidesAndNotThatToTheBase) {
  const auto finish = finish_of(against_other("pairs", -0.3, true, Gate::AGAINST_KVO_ONLY));
  ASSERT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_FALSE(finish.result().gate_results(0).passed());
  EXPECT_FALSE(finish.result().promotable());
  EXPECT_THAT(events("gate_result").at(0).message(),
              StartsWith("gate better not passed: perplexity.loss - kvo_only "
                         "ft:tiny:default:old:00 <= -0.3, high end; -0.25"));
  EXPECT_THAT(events("gate_result").at(0).message(), HasSubstr("of one seed each"));
}

TEST_F(SlotOtherAdapterTest, OneThatIsGoneCostsItsGateAndNothingElse) {
  auto job = against_other("pairs-without", 100, false);
  auto& base = *job.mutable_spec()->add_gates();
  base = job.spec().gates(0);
  base.set_name("beats-base");
  base.set_against(Gate::AGAINST_BASE);
  base.clear_adapter();
  const auto finish = finish_of(job);
  ASSERT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  ASSERT_EQ(finish.result().gate_results_size(), 2);
  EXPECT_FALSE(finish.result().gate_results(0).passed());
  EXPECT_THAT(finish.result().gate_results(0).not_measured(),
              HasSubstr("ft:tiny:default:old:00 was deleted before it could be measured"));
  EXPECT_TRUE(finish.result().gate_results(1).passed());
  EXPECT_EQ(finish.result().gate_results(1).value(), -0.5);
}

TEST_F(SlotOtherAdapterTest, AnEvaluatorThatKeepsNoItemsLeavesTheGateOpen) {
  const auto finish = finish_of(against_other("measured", 100, false));
  ASSERT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_FALSE(finish.result().gate_results(0).passed());
  EXPECT_THAT(finish.result().gate_results(0).not_measured(),
              HasSubstr("its task has kept no numbers by item"));
}

// Hours of training are not lost because of a file that nobody could read; but nothing passes.
TEST_F(SlotGatesTest, AFileThatCannotBeReadIsAGateThatHasNotPassed) {
  const auto finish = finish_of(gated("bad-file", 100));
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  const auto& result = finish.result().gate_results(0);
  EXPECT_FALSE(result.passed());
  EXPECT_THAT(result.not_measured(), HasSubstr("line 2: is no JSON"));
  EXPECT_FALSE(finish.result().promotable());
  EXPECT_THAT(events("gate_result").at(0).message(), HasSubstr("not measured: bad-file: line 2"));
}

TEST_F(SlotGatesTest, MemoryThatIsNotThereIsNotTriedAgain) {
  const auto finish = finish_of(gated("too-large", 100));
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_THAT(finish.result().gate_results(0).not_measured(), HasSubstr("not enough memory"));
}

// The kernel ends a process for want of memory in no other way than this.
TEST_F(SlotGatesTest, AnEvaluatorThatCrashesTwiceCostsNoTraining) {
  const auto finish = finish_of(gated("crash", 100));
  ASSERT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_EQ(finish.result().uri(), std::string(kAttemptDir) + "/final");
  EXPECT_FALSE(finish.result().gate_results(0).passed());
  EXPECT_THAT(
      finish.result().gate_results(0).not_measured(),
      StartsWith("the evaluator ended twice without a report, the last time with signal 6"));
  EXPECT_FALSE(finish.result().promotable());
  EXPECT_EQ(finish.checkpoint().uri(), std::string(kAttemptDir) + "/gates-0");
  EXPECT_TRUE(std::filesystem::exists(directory_ / kAttemptDir / "gates-0/MANIFEST.json"));
}

TEST_F(SlotGatesTest, ACrashIsFollowedByATryBehindWhatIsMeasured) {
  const auto finish = finish_of(gated("crash-once", -0.25));
  ASSERT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_TRUE(finish.result().gate_results(0).passed());
  EXPECT_EQ(finish.result().gate_results(0).value(), -0.5);
  EXPECT_EQ(finish.checkpoint().uri(), std::string(kAttemptDir) + "/gates-1");
}

TEST_F(SlotGatesTest, ALaterAttemptTrainsNothingAgain) {
  auto job = gated("goes-on", -0.25);
  job.mutable_spec()->set_suffix("exit-10");  // of a trainer that should not be there
  auto& own = *job.mutable_spec()->add_gates();
  own.set_name("held_out.loss");
  own.set_task("held_out");
  *job.mutable_checkpoint() = left_behind();
  const auto finish = finish_of(job);
  ASSERT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_EQ(finish.result().uri(), std::string(kAttemptDir) + "/final");
  EXPECT_EQ(finish.result().trained_tokens(), 1234);
  EXPECT_EQ(finish.progress().step(), 7u);
  // In the order of the spec, the trainer's too.
  ASSERT_EQ(finish.result().gate_results_size(), 2);
  EXPECT_EQ(finish.result().gate_results(0).gate(), "better");
  EXPECT_TRUE(finish.result().gate_results(0).passed());
  EXPECT_EQ(finish.result().gate_results(1).gate(), "held_out.loss");
  EXPECT_TRUE(finish.result().promotable());
  std::string weights;
  std::ifstream(directory_ / kAttemptDir / "final/adapter.bin") >> weights;
  EXPECT_EQ(weights, "weights");
  EXPECT_TRUE(std::filesystem::exists(directory_ / kAttemptDir / "final/checksums.json"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / kAttemptDir / "head_selection.json"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / kAttemptDir / "head_selection.svg"));
  EXPECT_EQ(finish.checkpoint().uri(), std::string(kAttemptDir) + "/gates-1");
  EXPECT_FALSE(std::filesystem::exists(directory_ / kAttemptDir / "trainer.log"));
}

// Each later attempt would find the same damage: the job trains again, without its checkpoint.
TEST_F(SlotGatesTest, ADamagedArtefactIsTrainedAgain) {
  auto job = gated("measured", -0.25);
  job.mutable_spec()->set_suffix("from-start");
  *job.mutable_checkpoint() = left_behind(true);
  const auto finish = finish_of(job);
  ASSERT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_EQ(finish.progress().step(), 3u) << "of the new training, not the 7 of the damaged one";
  EXPECT_FALSE(std::filesystem::exists(directory_ / kAttemptDir / "final/adapter.bin"));
  EXPECT_TRUE(finish.result().gate_results(0).passed());
  EXPECT_EQ(finish.checkpoint().uri(), std::string(kAttemptDir) + "/gates-1");
}

TEST_F(SlotGatesTest, AKeptStateThatIsGoneIsTrainedAgain) {
  auto job = gated("measured", -0.25);
  job.mutable_spec()->set_suffix("from-start");
  *job.mutable_checkpoint() = left_behind();
  std::filesystem::remove(directory_ / kBefore / "gates-1/trained.json");
  EXPECT_EQ(finish_of(job).outcome(), iv1::OUTCOME_SUCCESS);
}

class SlotGatesOrderTest : public SlotGatesTest {
 protected:
  // Until the evaluator runs, or is about to.
  void begin() {
    start();
    scheduler_.offer(gated("wait", 0));
    ASSERT_TRUE(scheduler_.wait([](const Heard& h) {
      return !h.stored_beats.empty() &&
             h.stored_beats.rbegin()->second.checkpoint().uri().ends_with("/gates-0");
    }));
  }
};

TEST_F(SlotGatesOrderTest, CancelEndsTheEvaluatorAndPublishesNothing) {
  begin();
  scheduler_.set_verdict(iv1::AttemptVerdict::VERDICT_CANCEL);
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_CANCELLED);
  EXPECT_FALSE(finish.has_result());
  stop();
  expect_slot_free();
}

TEST_F(SlotGatesOrderTest, PauseKeepsWhatIsDone) {
  begin();
  scheduler_.set_verdict(iv1::AttemptVerdict::VERDICT_PAUSE);
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_PAUSED);
  EXPECT_THAT(finish.checkpoint().uri(), HasSubstr("/attempt-5/gates-"));
}

TEST_F(SlotGatesOrderTest, DrainGivesTheJobBackWithWhatIsDone) {
  begin();
  stop();
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_RELEASE);
  EXPECT_THAT(finish.checkpoint().uri(), HasSubstr("/attempt-5/gates-"));
  EXPECT_FALSE(finish.has_result());
  expect_slot_free();
}

}  // namespace
}  // namespace dex::agent
