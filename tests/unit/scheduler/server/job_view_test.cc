// What a user sees of a stored job, its events and its adapter.

#include "scheduler/server/job_view.h"

#include <gtest/gtest.h>

#include "scheduler/server/times.h"

namespace dex::server {
namespace {

store::JobRecord record(const std::string& state) {
  v1::EffectiveConfig config;
  auto& spec = *config.mutable_spec();
  spec.set_model("smol");
  spec.set_training_file("file-1");
  spec.set_suffix("mine");
  spec.set_seed(7);
  (*spec.mutable_metadata())["team"] = "a";
  config.set_preset_version("code@1");
  store::JobRecord job;
  job.id = "ftjob-01";
  job.state = state;
  job.want = "run";
  job.spec = fixed_part(config).SerializeAsString();
  job.adapter = "ft:smol:default:mine:01";
  job.revision = 12;
  job.created_ms = 1'764'000'000'123;
  job.changed_ms = 1'764'000'005'000;
  return job;
}

std::string bytes(uint32_t step, uint32_t total) {
  v1::Progress progress;
  progress.set_step(step);
  progress.set_total_steps(total);
  progress.set_trained_tokens(step * 100);
  return progress.SerializeAsString();
}

// Alive or dead can be told from the job alone.
TEST(JobViewTest, ARunningJobSaysWhenItsWorkerWasHeardOfAndWhenItsLeaseEnds) {
  auto stored = record("RUNNING");
  stored.worker = "w1";
  stored.heartbeat_ms = 1'764'000'004'500;
  stored.lease_ms = 1'764'000'034'500;
  auto job = job_view(stored);
  EXPECT_EQ(unix_ms(job.heartbeat_time()), 1'764'000'004'500);
  EXPECT_EQ(unix_ms(job.lease_expire_time()), 1'764'000'034'500);
  job = job_view(record("READY"));
  EXPECT_FALSE(job.has_heartbeat_time());
  EXPECT_FALSE(job.has_lease_expire_time());
}

TEST(JobViewTest, AQueuedJobSaysWhatItIsAndWhyItWaits) {
  auto stored = record("READY");
  stored.queue_position = 3;
  stored.tenant_in_ring = true;
  const auto job = job_view(stored);
  EXPECT_EQ(job.id(), "ftjob-01");
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(job.waiting_reason(), v1::WAITING_REASON_CAPACITY);
  EXPECT_EQ(job.queue_position(), 3u);
  EXPECT_EQ(job.model(), "smol");
  EXPECT_EQ(job.suffix(), "mine");
  EXPECT_EQ(job.seed(), 7);
  EXPECT_EQ(job.metadata().at("team"), "a");
  EXPECT_EQ(job.training_file(), "file-1");
  EXPECT_EQ(job.etag(), "12");
  EXPECT_EQ(job.create_time().seconds(), 1'764'000'000);
  EXPECT_EQ(job.create_time().nanos(), 123'000'000);
  EXPECT_FALSE(job.has_start_time());
  EXPECT_FALSE(job.has_end_time());
  EXPECT_TRUE(job.has_progress()) << "step 0: scripts read it from the first reply on";
  EXPECT_EQ(job.progress().step(), 0u);
  EXPECT_EQ(job.fine_tuned_model(), "") << "its adapter does not exist yet";
  EXPECT_EQ(job.effective_config().preset_version(), "code@1");
  EXPECT_FALSE(job_view(stored, false).has_effective_config());
  stored.tenant_in_ring = false;
  EXPECT_EQ(job_view(stored).waiting_reason(), v1::WAITING_REASON_QUOTA);
  stored.lacks_model = true;
  EXPECT_EQ(job_view(stored).waiting_reason(), v1::WAITING_REASON_MODEL);
}

TEST(JobViewTest, WhatWasUpdatedStandsBeforeWhatTheSpecHad) {
  auto stored = record("PAUSED");
  stored.priority = 6;
  stored.pause_reason = "DISK_FULL";
  stored.name = "renamed";
  v1::FineTuningJob pairs;
  (*pairs.mutable_metadata())["team"] = "b";
  stored.metadata = pairs.SerializeAsString();
  const auto job = job_view(stored);
  EXPECT_EQ(job.priority(), 6u);
  EXPECT_EQ(job.pause_reason(), v1::PAUSE_REASON_DISK_FULL);
  EXPECT_EQ(job.display_name(), "renamed");
  EXPECT_EQ(job.metadata().at("team"), "b");
  EXPECT_EQ(job.effective_config().spec().metadata().at("team"), "a") << "as it was asked for";
  stored.metadata = "";
  EXPECT_EQ(job_view(stored).metadata_size(), 0) << "cleared, not forgotten";
  stored.state = "READY";
  EXPECT_EQ(job_view(stored).pause_reason(), v1::PAUSE_REASON_UNSPECIFIED);
}

TEST(JobViewTest, ARunningJobShowsItsPlaceAndProgress) {
  auto stored = record("RUNNING");
  stored.worker = "w1";
  stored.phase = "TRAINING";
  stored.attempt = 2;
  stored.progress = bytes(40, 200);
  stored.checkpoint = {"jobs/default/ftjob-01/attempt-5/step-30", "sha", 30};
  stored.started_ms = 1'764'000'001'000;
  const auto job = job_view(stored);
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(job.phase(), v1::JOB_PHASE_TRAINING);
  EXPECT_EQ(job.worker(), "w1");
  EXPECT_EQ(job.attempt(), 2u);
  EXPECT_EQ(job.progress().step(), 40u);
  EXPECT_EQ(job.trained_tokens(), 4000);
  EXPECT_EQ(job.last_checkpoint(), "step-30");
  EXPECT_TRUE(job.has_start_time());
  stored.checkpoint.uri = "jobs/default/ftjob-01/attempt-5/gates-0";
  EXPECT_EQ(job_view(stored).last_checkpoint(), "gates-0");
  stored.checkpoint = {};
  EXPECT_EQ(job_view(stored).last_checkpoint(), "");
}

TEST(JobViewTest, ASucceededJobNamesItsAdapterAndFigures) {
  auto stored = record("SUCCEEDED");
  iv1::AttemptResult result;
  result.mutable_metrics()->set_valid_loss(2.5);
  result.mutable_metrics()->set_early_stopped(true);
  result.mutable_branch_effect()->set_verdict(v1::BranchEffect::VERDICT_WEAK);
  result.set_trained_tokens(4321);
  result.add_gate_results()->set_gate("quality");
  result.set_promotable(false);
  stored.result = result.SerializeAsString();
  stored.progress = bytes(43, 43);
  stored.finished_ms = 1'764'000'009'000;
  const auto job = job_view(stored);
  EXPECT_EQ(job.fine_tuned_model(), "ft:smol:default:mine:01");
  EXPECT_EQ(job.metrics().valid_loss(), 2.5);
  EXPECT_TRUE(job.early_stopped());
  EXPECT_EQ(job.branch_effect().verdict(), v1::BranchEffect::VERDICT_WEAK);
  EXPECT_EQ(job.trained_tokens(), 4321);
  EXPECT_EQ(job.gate_results(0).gate(), "quality");
  EXPECT_TRUE(job.has_promotable());
  EXPECT_FALSE(job.promotable());
  EXPECT_EQ(job.end_time().seconds(), 1'764'000'009);
  EXPECT_FALSE(job.has_error());
}

TEST(JobViewTest, AFailureSaysWhoActs) {
  auto stored = record("FAILED");
  v1::JobError details;
  details.set_param("learning_rate");
  details.set_step(17);
  stored.why_details = details.SerializeAsString();
  stored.why_code = "non_finite_loss";
  stored.why = "the loss is not finite";
  stored.attempt = 1;
  auto job = job_view(stored);
  EXPECT_EQ(job.error().code(), "non_finite_loss");
  EXPECT_EQ(job.error().message(), "the loss is not finite");
  EXPECT_EQ(job.error().param(), "learning_rate");
  EXPECT_EQ(job.error().step(), 17u);
  EXPECT_EQ(job.error().category(), "USER");
  EXPECT_FALSE(job.error().retryable());
  stored.why_code = "worker_lost";
  job = job_view(stored);
  EXPECT_EQ(job.error().category(), "SYSTEM");
  EXPECT_TRUE(job.error().retryable());
  // A job that runs again after a failure has no error.
  stored.state = "RUNNING";
  EXPECT_FALSE(job_view(stored).has_error());
  stored.state = "CANCELLED";
  EXPECT_FALSE(job_view(stored).has_error());
  stored.why_code = "deadline_exceeded";
  EXPECT_EQ(job_view(stored).state(), v1::JOB_STATE_EXPIRED);
  EXPECT_EQ(job_view(stored).error().code(), "deadline_exceeded");
}

TEST(JobViewTest, BytesOfAnotherVersionAreNoCrash) {
  auto stored = record("RUNNING");
  stored.progress = stored.spec = "\xff\xff\xff";
  const auto job = job_view(stored);
  EXPECT_EQ(job.id(), "ftjob-01");
  EXPECT_EQ(job.state(), v1::JOB_STATE_RUNNING);
}

TEST(JobViewTest, PhasesAreWordsInTheStore) {
  for (int i = 0; i < v1::JobPhase_ARRAYSIZE; ++i) {
    if (!v1::JobPhase_IsValid(i)) continue;
    const auto phase = static_cast<v1::JobPhase>(i);
    EXPECT_EQ(phase_of(phase_word(phase)), phase);
  }
  EXPECT_EQ(phase_word(v1::JOB_PHASE_TRAINING), "TRAINING");
  EXPECT_EQ(phase_word(v1::JOB_PHASE_UNSPECIFIED), "");
  EXPECT_EQ(phase_of("no phase of ours"), v1::JOB_PHASE_UNSPECIFIED);
}

TEST(EventViewTest, AWorkersEventComesBackAsItWasSent) {
  v1::FineTuningEvent sent;
  sent.set_type("metrics");
  sent.set_level(v1::FineTuningEvent::LEVEL_WARN);
  sent.set_message("slow");
  sent.mutable_metrics()->set_step(9);
  sent.mutable_create_time()->set_seconds(1'764'000'000);
  const store::NewEvent entry = new_event(sent);
  EXPECT_EQ(entry.at_ms, 1'764'000'000'000);
  store::LogEntry stored;
  stored.sequence = 5;
  stored.at_ms = entry.at_ms;
  stored.level = entry.level;
  stored.type = entry.type;
  stored.message = entry.message;
  stored.data = entry.data;
  stored.attempt = 2;
  const auto event = event_view("ftjob-01abc", stored);
  EXPECT_EQ(event.id(), "ftevent-01abc-5");
  EXPECT_EQ(event.sequence(), 5);
  EXPECT_EQ(event.level(), v1::FineTuningEvent::LEVEL_WARN);
  EXPECT_EQ(event.type(), "metrics");
  EXPECT_EQ(event.message(), "slow");
  EXPECT_EQ(event.attempt(), 2u);
  EXPECT_EQ(event.metrics().step(), 9u);
  EXPECT_EQ(event.create_time().seconds(), 1'764'000'000);
}

TEST(EventViewTest, AWorkerCannotForgeItsPlaceInTheLog) {
  v1::FineTuningEvent sent;
  sent.set_type("metrics");
  sent.set_id("ftevent-other-1");
  sent.set_sequence(999);
  sent.set_attempt(9);
  store::LogEntry stored;
  stored.sequence = 5;
  stored.type = "metrics";
  stored.data = sent.SerializeAsString();  // as if new_event() had not cleared them
  const auto event = event_view("ftjob-01", stored);
  EXPECT_EQ(event.id(), "ftevent-01-5");
  EXPECT_EQ(event.sequence(), 5);
  EXPECT_EQ(event.attempt(), 0u);
}

TEST(EventViewTest, TheStoresOwnEventsCarryTheirData) {
  const auto event = [](const std::string& type, const std::string& data) {
    store::LogEntry entry;
    entry.type = type;
    entry.data = data;
    entry.attempt = 3;
    return event_view("ftjob-01", entry);
  };
  EXPECT_EQ(event("job_start", "w1\n40").job_start().worker(), "w1");
  EXPECT_EQ(event("job_start", "w1\n40").job_start().resumed_from_step(), 40u);
  EXPECT_EQ(event("job_restarted", "crash\n40").job_restarted().reason(), "crash");
  EXPECT_EQ(event("job_restarted", "crash\n40").job_restarted().checkpoint(), "step-40");
  EXPECT_EQ(event("job_restarted", "crash\n0").job_restarted().checkpoint(), "");
  EXPECT_EQ(event("job_complete", "ft:a:b:c:d").job_end().fine_tuned_model(), "ft:a:b:c:d");
  EXPECT_EQ(event("job_user_error", "gate_failed").job_end().error_code(), "gate_failed");
  EXPECT_EQ(event("job_cancelled", "").data_case(), v1::FineTuningEvent::kJobEnd);
}

TEST(EventViewTest, OnlyTheStoreEndsAJob) {
  for (const char* type :
       {"job_complete", "job_cancelled", "job_expired", "job_user_error", "job_error"}) {
    EXPECT_TRUE(is_last_event(type)) << type;
    EXPECT_TRUE(is_reserved_event(type)) << type;
  }
  EXPECT_FALSE(is_last_event("job_paused"));
  EXPECT_TRUE(is_reserved_event("job_paused"));
  EXPECT_FALSE(is_reserved_event("metrics"));
}

TEST(AdapterViewTest, ShowsTheRecordNotWhatTheWorkerSaidOfItself) {
  iv1::AttemptResult result;
  result.mutable_adapter()->set_form("paper");
  result.mutable_adapter()->set_id("ft:forged");
  result.mutable_adapter()->set_promotable(true);
  result.set_bytes(1234);
  result.mutable_metrics()->set_valid_loss(2.5);
  store::AdapterRecord record;
  record.id = "ft:smol:default:mine:01";
  record.job = "ftjob-01";
  record.sha256 = std::string(64, 'a');
  record.info = result.SerializeAsString();
  record.desired = "loaded";
  record.created_ms = 1'764'000'000'000;
  const auto adapter = adapter_view(record);
  EXPECT_EQ(adapter.id(), "ft:smol:default:mine:01");
  EXPECT_EQ(adapter.base_model(), "smol");
  EXPECT_EQ(adapter.job(), "ftjob-01");
  EXPECT_EQ(adapter.form(), "paper");
  EXPECT_EQ(adapter.bytes(), 1234);
  EXPECT_EQ(adapter.version(), std::string(12, 'a'));
  EXPECT_EQ(adapter.metrics().valid_loss(), 2.5);
  EXPECT_FALSE(adapter.has_promotable());  // a result of before says nothing of it
  EXPECT_EQ(adapter.desired(), v1::Adapter::DESIRED_DEVICE);
  record.desired = "none";
  EXPECT_EQ(adapter_view(record).desired(), v1::Adapter::DESIRED_ABSENT);
  result.set_promotable(false);
  result.add_gate_results()->set_gate("quality");
  record.info = result.SerializeAsString();
  EXPECT_TRUE(adapter_view(record).has_promotable());
  EXPECT_FALSE(adapter_view(record).promotable());
  EXPECT_EQ(adapter_view(record).gate_results(0).gate(), "quality");
  EXPECT_EQ(base_of_adapter("no colon"), "");
}

}  // namespace
}  // namespace dex::server
