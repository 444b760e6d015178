// How attempts begin and end.
#include "worker/agent/slot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/base/process_lock.h"
#include "tests/support/eventually.h"
#include "tests/unit/worker/agent/slot_fixture.h"

namespace dex::agent {
namespace {

using Outage = support::FakeScheduler::Outage;
using Heard = support::FakeScheduler::Heard;
using iv1::AttemptVerdict;

TEST_F(SlotTest, AJobThatGoesOnFromAnAdapterIsGivenItsFolder) {
  iv1::ClaimedJob job = job_of("go-on");
  job.mutable_spec()->set_model("ft:tiny:default::01");
  job.set_base_model("tiny");
  job.mutable_start_adapter()->set_id("ft:tiny:default::01");
  job.mutable_start_adapter()->set_path("jobs/default/ftjob-0/final");
  job.mutable_start_adapter()->set_content_sha256("dd");
  scheduler_.offer(job);
  start();
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_SUCCESS);
}

TEST_F(SlotTest, TheGuardsProbeFileReachesTheTrainer) {
  iv1::ClaimedJob job = job_of("probe");
  job.mutable_probe_input()->set_path("files/p.jsonl");
  job.mutable_probe_input()->set_sha256("ee");
  scheduler_.offer(job);
  start();
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_SUCCESS);
}

TEST_F(SlotTest, TheCalibrationFileReachesTheTrainer) {
  iv1::ClaimedJob job = job_of("calibration");
  job.mutable_calibration_input()->set_path("files/c.jsonl");
  job.mutable_calibration_input()->set_sha256("cc");
  scheduler_.offer(job);
  start();
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_SUCCESS);
}

TEST_F(SlotTest, AHeldJobsTrainerChecksItAndEndsAsPaused) {
  iv1::ClaimedJob job;
  job.set_job_id("ftjob-1");
  job.set_epoch(5);
  job.set_attempt(1);
  job.mutable_spec()->set_model("tiny");
  job.mutable_spec()->set_suffix("held");
  job.set_attempt_dir(kAttemptDir);
  job.mutable_training_input()->set_path("files/a.jsonl");
  job.set_hold(true);
  scheduler_.offer(job);
  start();
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_PAUSED);
  EXPECT_FALSE(finish.has_checkpoint());
  expect_slot_free();
}

TEST_F(SlotTest, ThePrefixCacheIsBelowTheDataDirectory) {
  attempt_.prefix_cache_bytes = 5;
  start();
  offer("prefix-cache");
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_SUCCESS);
}

TEST_F(SlotTest, ThereIsNoPrefixCacheWithoutABound) {
  attempt_.prefix_cache_bytes = 0;
  start();
  offer("no-prefix-cache");
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_SUCCESS);
}

TEST_F(SlotTest, ASuccessIsReportedWithPathsBelowTheDataDirectory) {
  start();
  offer("success");
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS);
  EXPECT_EQ(finish.job_id(), "ftjob-1");
  EXPECT_EQ(finish.epoch(), 5);
  EXPECT_EQ(finish.result().uri(), std::string(kAttemptDir) + "/final");
  EXPECT_EQ(finish.checkpoint().uri(), std::string(kAttemptDir) + "/step-3");
  EXPECT_EQ(finish.progress().step(), 3u);
  EXPECT_TRUE(std::filesystem::exists(directory_ / kAttemptDir / "trainer.log"));
  EXPECT_NE(registry_.text().find("dex_train_tokens_total 200"), std::string::npos)
      << "from the first frame on";
  EXPECT_NE(registry_.text().find("dex_checkpoint_bytes_total 1000"), std::string::npos);
}

TEST_F(SlotTest, EveryEventArrivesOnceAndBeforeFinish) {
  start();
  offer("success");
  (void)finished();
  int next = 0;
  for (const auto& [seq, beat] : scheduler_.heard().stored_beats) {
    EXPECT_LE(beat.events_size(), 128);
    for (const auto& event : beat.events()) {
      EXPECT_EQ(event.message(), "event " + std::to_string(next++));
      EXPECT_EQ(event.attempt(), 2u);
    }
  }
  EXPECT_EQ(next, 300);
}

TEST_F(SlotTest, JobsAboutOneAdapterAreGivenItsFiles) {
  start();
  iv1::ClaimedJob uploaded;
  uploaded.set_job_id("import-1");
  uploaded.set_kind("adapter_import");
  uploaded.set_epoch(5);
  uploaded.set_base_model("tiny");
  uploaded.mutable_adapter_import()->set_path("jobs/default/import-1/upload");
  uploaded.set_attempt_dir("jobs/default/import-1/attempt-5");
  scheduler_.offer(uploaded);
  const auto imported = finished();
  EXPECT_EQ(imported.outcome(), iv1::OUTCOME_SUCCESS) << imported.message();
  EXPECT_EQ(imported.result().uri(), "jobs/default/import-1/attempt-5/final");

  iv1::ClaimedJob made;
  made.set_job_id("export-1");
  made.set_kind("adapter_export");
  made.set_epoch(6);
  made.set_base_model("tiny");
  made.mutable_adapter_export()->set_dtype("bf16");
  made.mutable_adapter_export()->mutable_adapter()->set_id("ft:tiny:default::01");
  made.mutable_adapter_export()->mutable_adapter()->set_path("jobs/default/ftjob-0/final");
  made.mutable_adapter_export()->mutable_adapter()->set_content_sha256("dd");
  made.set_attempt_dir("jobs/default/export-1/attempt-6");
  scheduler_.offer(made);
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return h.finishes.size() >= 2; }));
  EXPECT_EQ(scheduler_.heard().finishes[1].outcome(), iv1::OUTCOME_SUCCESS);

  made.set_job_id("export-2");
  made.set_base_model("another");
  made.set_attempt_dir("jobs/default/export-2/attempt-6");
  scheduler_.offer(made);
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return h.finishes.size() >= 3; }));
  EXPECT_EQ(scheduler_.heard().finishes[2].outcome(), iv1::OUTCOME_RELEASE);
}

TEST_F(SlotTest, AnEvaluationRunsInItsOwnProgram) {
  start();
  iv1::ClaimedJob job;
  job.set_job_id("eval-1");
  job.set_kind("evaluation");
  job.set_epoch(5);
  job.mutable_evaluation()->add_subjects()->set_model("tiny");
  job.add_evaluation_files()->set_path("files/a.raw");
  job.set_attempt_dir("jobs/default/eval-1/attempt-5");
  scheduler_.offer(job);
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_EQ(finish.result().uri(), "jobs/default/eval-1/attempt-5/final");
  EXPECT_TRUE(std::filesystem::exists(directory_ / "jobs/default/eval-1/attempt-5/evaluator.log"));
  std::string heard;
  for (const auto& [seq, beat] : scheduler_.heard().stored_beats) {
    for (const auto& event : beat.events()) heard = event.message();
  }
  EXPECT_EQ(heard, (directory_ / "files/a.raw").string());
}

// Its progress has no new step for longer than a stall may last: every frame is a sign of life. It
// may take its time to begin.
TEST_F(SlotTest, AnEvaluationThatSaysItStillComputesIsNotStalled) {
  attempt_.default_stall_ms = 3'000;  // of five
  start();
  iv1::ClaimedJob job;
  job.set_job_id("eval-1");
  job.set_kind("evaluation");
  job.set_epoch(5);
  auto& subject = *job.mutable_evaluation()->add_subjects();
  subject.set_model("tiny");
  subject.set_label("slow");
  job.add_evaluation_files()->set_path("files/a.raw");
  job.set_attempt_dir("jobs/default/eval-1/attempt-5");
  scheduler_.offer(job);
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.code() << " " << finish.message();
}

TEST_F(SlotTest, APreviewsTrainerChoosesHeadsAndNothingElse) {
  start();
  iv1::ClaimedJob job;
  job.set_job_id("heads-1");
  job.set_kind("head_selection");
  job.set_epoch(5);
  job.set_attempt(1);
  job.mutable_spec()->set_model("tiny");
  job.mutable_spec()->set_suffix("heads-only");
  job.set_attempt_dir("jobs/default/heads-1/attempt-5");
  job.mutable_training_input()->set_path("jobs/default/heads-1/texts.jsonl");
  scheduler_.offer(job);
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS) << finish.message();
  EXPECT_EQ(finish.result().uri(), "jobs/default/heads-1/attempt-5/final");
}

TEST_F(SlotTest, OnlyAPreviewIsToldSo) {
  start();
  offer("heads-only");
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_FAIL_FINAL);
}

TEST_F(SlotTest, AJobOfAnUnknownKindIsGivenBack) {
  start();
  iv1::ClaimedJob job;
  job.set_job_id("distil-1");
  job.set_kind("distil");
  job.set_epoch(5);
  job.set_attempt_dir("jobs/default/distil-1/attempt-5");
  scheduler_.offer(job);
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_RELEASE);
  EXPECT_NE(finish.message().find("distil"), std::string::npos);
}

// The scheduler stores each beat but its answers are lost: what is repeated is the same, and
// nothing is stored twice.
TEST_F(SlotTest, LostAnswersRepeatTheSameBeatAndFinish) {
  start();
  offer("wait");
  ASSERT_TRUE(wait_for_step(1));
  scheduler_.set_outage(Outage::kAfter);
  drain_.request_stop();
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return h.beats.size() > 5; }));
  scheduler_.set_outage(Outage::kNone);
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_RELEASE);
  EXPECT_EQ(scheduler_.heard().different_repeats, 0);
}

TEST_F(SlotTest, FinishIsRepeatedUntilItIsAnswered) {
  start();
  offer("success");
  // Every event must be answered before Finish is tried: the outage begins with the first Finish.
  scheduler_.set_outage_of_finish(true);
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return h.finishes.size() >= 3; }));
  scheduler_.set_outage_of_finish(false);
  const auto claims = scheduler_.heard().claims.size();
  EXPECT_TRUE(scheduler_.wait([&](const Heard& h) { return h.claims.size() > claims; }));
  for (const auto& finish : scheduler_.heard().finishes) {
    EXPECT_EQ(finish.outcome(), iv1::OUTCOME_SUCCESS);
  }
}

// LOST is an answer: the job has gone on elsewhere, and nothing is gained by saying it again.
TEST_F(SlotTest, AFinishAfterTheLeaseIsSaidOnce) {
  scheduler_.set_finish_state("LOST");
  start();
  offer("success");
  (void)finished();
  const auto claims = scheduler_.heard().claims.size();
  ASSERT_TRUE(scheduler_.wait([&](const Heard& h) { return h.claims.size() > claims; }))
      << "the slot goes on";
  EXPECT_EQ(scheduler_.heard().finishes.size(), 1U);
}

struct ExitCase {
  const char* behaviour;
  iv1::Outcome outcome;
  const char* code;
};
class SlotExitTest : public SlotTest, public testing::WithParamInterface<ExitCase> {};

TEST_P(SlotExitTest, EachEndOfATrainerHasItsOutcome) {
  start();
  offer(GetParam().behaviour);
  const auto finish = finished();
  EXPECT_EQ(iv1::Outcome_Name(finish.outcome()), iv1::Outcome_Name(GetParam().outcome));
  EXPECT_EQ(finish.code(), GetParam().code);
  EXPECT_FALSE(finish.has_result());
  stop();
  expect_slot_free();
}

INSTANTIATE_TEST_SUITE_P(Exits, SlotExitTest,
                         testing::Values(ExitCase{"crash", iv1::OUTCOME_CRASH, "internal"},
                                         ExitCase{"exit-13", iv1::OUTCOME_OOM, "out_of_memory"},
                                         ExitCase{"exit-14", iv1::OUTCOME_DISK_FULL, "disk_full"},
                                         ExitCase{"exit-11", iv1::OUTCOME_FAIL_FINAL,
                                                  "invalid_training_file"},
                                         ExitCase{"nonsense", iv1::OUTCOME_CRASH, "internal"},
                                         ExitCase{"silent-success", iv1::OUTCOME_CRASH, "internal"},
                                         ExitCase{"where", iv1::OUTCOME_CRASH, "internal"}));

TEST_F(SlotTest, ARefusedResultIsAFailureThatSaysWhy) {
  start();
  scheduler_.refuse_success(true);
  offer("success");
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_FAIL_RETRY);
  EXPECT_NE(finish.message().find("no checksums.json"), std::string::npos);
}

TEST_F(SlotTest, CancelStopsATrainerThatListens) {
  start();
  offer("wait");
  ASSERT_TRUE(wait_for_step(2));
  scheduler_.set_verdict(AttemptVerdict::VERDICT_CANCEL);
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_CANCELLED);
}

TEST_F(SlotTest, CancelKillsATrainerThatIsDeaf) {
  attempt_.stop.kill_grace_ms = 100;
  start();
  offer("hang");
  ASSERT_TRUE(wait_for_step(2));
  scheduler_.set_verdict(AttemptVerdict::VERDICT_CANCEL);
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_CANCELLED);
  stop();
  expect_slot_free();
}

TEST_F(SlotTest, PauseKeepsACheckpoint) {
  start();
  offer("wait");
  ASSERT_TRUE(wait_for_step(2));
  scheduler_.set_verdict(AttemptVerdict::VERDICT_PAUSE);
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_PAUSED);
  EXPECT_GE(finish.checkpoint().step(), 2u);
}

TEST_F(SlotTest, ALostLeaseKillsAndReportsNothing) {
  attempt_.stop.kill_grace_ms = 100;
  start();
  offer("hang");
  ASSERT_TRUE(wait_for_step(2));
  scheduler_.set_verdict(AttemptVerdict::VERDICT_LOST);
  const auto claims = scheduler_.heard().claims.size();
  ASSERT_TRUE(scheduler_.wait([&](const Heard& h) { return h.claims.size() > claims; }))
      << "the slot goes on";
  EXPECT_TRUE(scheduler_.heard().finishes.empty());
  expect_slot_free();
}

TEST_F(SlotTest, AStalledTrainerIsKilled) {
  attempt_.default_stall_ms = 200;
  attempt_.first_sign_ms = 200;
  start();
  offer("stall");
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_FAIL_RETRY);
  EXPECT_EQ(finish.code(), "stalled");
  EXPECT_THAT(finish.message(),
              testing::MatchesRegex("dex-fake-trainer \\(process [0-9]+ on worker .+\\) did "
                                    "nothing new for [0-9]+ s after .+; it was "
                                    "[a-z ]+ and was killed"));
}

// Frames come all the time, but none says that it gets any further.
TEST_F(SlotTest, ATrainerThatOnlyTalksIsStalled) {
  attempt_.default_stall_ms = 300;
  attempt_.first_sign_ms = 300;
  start();
  offer("babble");
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_FAIL_RETRY);
  EXPECT_EQ(finish.code(), "stalled");
}

TEST_F(SlotTest, DrainGivesTheJobBackWithItsCheckpoint) {
  start();
  offer("wait");
  ASSERT_TRUE(wait_for_step(2));
  stop();
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_RELEASE);
  EXPECT_GE(finish.checkpoint().step(), 2u);
  expect_slot_free();
}

TEST_F(SlotTest, AForgottenWorkerRegistersAgain) {
  start();
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return !h.claims.empty(); }));
  scheduler_.forget_worker();
  EXPECT_TRUE(scheduler_.wait([](const Heard& h) { return h.registrations.size() >= 2; }));
  offer("success");
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_SUCCESS);
}

TEST_F(SlotTest, AClaimWhoseAnswerWasLostIsRepeatedWithItsId) {
  start();
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return !h.claims.empty(); }));
  scheduler_.set_outage(Outage::kAfter);
  offer("success");
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) {
    return h.claims.size() >= 2 &&
           h.claims[h.claims.size() - 1].claim_id() == h.claims[h.claims.size() - 2].claim_id();
  }));
  scheduler_.set_outage(Outage::kNone);
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_SUCCESS);
}

TEST_F(SlotTest, AHeldSlotGivesTheJobBack) {
  const auto held = base::lock_file(directory_ / "slot.lock");
  ASSERT_TRUE(held.ok());
  start();
  offer("success");
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_RELEASE);
  EXPECT_NE(finish.message().find("gpu_busy"), std::string::npos);
}

TEST_F(SlotTest, AModelThatIsNotHereGivesTheJobBack) {
  models_[0].name = "other";
  start();
  offer("success");
  const auto finish = finished();
  EXPECT_EQ(finish.outcome(), iv1::OUTCOME_RELEASE);
  EXPECT_NE(finish.message().find("tiny"), std::string::npos);
}

// What one job lacks here says nothing of the next one.
TEST_F(SlotTest, ASlotThatLacksAModelRunsJobsOfOthers) {
  models_[0].name = "other";
  start();
  offer("success");
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_RELEASE);
  iv1::ClaimedJob job;
  job.set_job_id("ftjob-2");
  job.set_epoch(6);
  job.mutable_spec()->set_model("other");
  job.mutable_spec()->set_suffix("success");
  job.set_attempt_dir("jobs/default/ftjob-2/attempt-6");
  job.mutable_training_input()->set_path("files/a.jsonl");
  scheduler_.offer(job);
  ASSERT_TRUE(scheduler_.wait([](const Heard& h) { return h.finishes.size() >= 2; }));
  EXPECT_EQ(scheduler_.heard().finishes[1].outcome(), iv1::OUTCOME_SUCCESS);
}

TEST_F(SlotTest, ABrokenBaseTakesTheSlotOutOfService) {
  start();
  offer("exit-17");
  EXPECT_EQ(finished().outcome(), iv1::OUTCOME_RELEASE);
  EXPECT_TRUE(support::eventually([&] {
    const std::string text = registry_.text();
    const size_t at = text.find("state=\"out_of_service\"");
    return at != std::string::npos && text.substr(at, text.find('\n', at) - at).ends_with(" 1");
  }));
}

}  // namespace
}  // namespace dex::agent
