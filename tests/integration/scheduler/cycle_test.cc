// A job's whole way, and the ways it may go wrong on a worker.
#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "services/base/clock.h"
#include "services/rpc/times.h"
#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"

namespace dex::server {
namespace {

using testing::ElementsAre;

class CycleTest : public SchedulerTest {};

TEST_F(CycleTest, CreateClaimBeatFinish) {
  enlist();
  const auto created = create_good("first");
  EXPECT_EQ(created.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(created.waiting_reason(), v1::WAITING_REASON_CAPACITY);
  EXPECT_EQ(created.queue_position(), 1U);
  EXPECT_EQ(created.effective_config().spec().hyperparameters().max_steps(), 20U);
  EXPECT_FALSE(created.effective_config().preset_version().empty());
  EXPECT_NE(created.seed(), 0);
  EXPECT_TRUE(created.has_progress());  // step 0, before any worker has said a word
  EXPECT_EQ(created.progress().total_steps(), 20U);

  const auto claimed = claim();
  ASSERT_TRUE(claimed.has_job());
  const auto& job = claimed.job();
  EXPECT_EQ(job.job_id(), created.id());
  EXPECT_EQ(job.attempt(), 1U);
  EXPECT_EQ(job.spec().SerializeAsString(), created.effective_config().spec().SerializeAsString());
  EXPECT_EQ(job.attempt_dir(),
            "jobs/default/" + created.id() + "/attempt-" + std::to_string(job.epoch()));
  EXPECT_TRUE(std::filesystem::exists(directory_ / "data" / job.training_input().path()));
  EXPECT_FALSE(job.has_checkpoint());

  v1::FineTuningEvent point;
  point.set_level(v1::FineTuningEvent::LEVEL_INFO);
  point.set_type("metrics");
  point.mutable_metrics()->set_train_loss(3.25);
  const auto reply = beat(job, 7, "w1", {point});
  ASSERT_EQ(reply.attempts_size(), 1);
  EXPECT_EQ(reply.attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_OK);
  EXPECT_GT(reply.attempts(0).expires_in_ms(), 15'000);
  const auto running = get(created.id());
  EXPECT_EQ(running.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(running.phase(), v1::JOB_PHASE_TRAINING);
  EXPECT_EQ(running.progress().step(), 7U);
  EXPECT_EQ(running.worker(), "w1");

  EXPECT_EQ(finish_well(job), "SUCCEEDED");
  const auto done = get(created.id());
  EXPECT_EQ(done.state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(done.fine_tuned_model().starts_with("ft:small-model:default::"));
  EXPECT_EQ(done.metrics().valid_loss(), 2.5);
  EXPECT_EQ(done.branch_effect().verdict(), v1::BranchEffect::VERDICT_ACTIVE);
  EXPECT_EQ(done.trained_tokens(), 4321);
  EXPECT_TRUE(done.has_end_time());

  v1::ListFineTuningEventsRequest list;
  list.set_id(created.id());
  const auto events = call(*jobs_, &JobStub::ListFineTuningEvents, list);
  ASSERT_TRUE(events.ok());
  ASSERT_EQ(events->events_size(), 4);
  EXPECT_EQ(events->events(0).type(), "job_queued");
  EXPECT_EQ(events->events(1).job_start().worker(), "w1");
  EXPECT_EQ(events->events(2).metrics().train_loss(), 3.25);
  EXPECT_EQ(events->events(3).job_end().fine_tuned_model(), done.fine_tuned_model());
  EXPECT_EQ(events->events(3).id(), "ftevent-" + created.id().substr(6) + "-4");
}

TEST_F(CycleTest, AJobIsOnlyGivenToAWorkerThatHasItsModel) {
  enlist("w1", {"other-model"});
  enlist("w2", {"other-model", "small-model"});
  const auto created = create_good("first");
  EXPECT_FALSE(claim("w1").has_job());
  EXPECT_EQ(claim("w2").job().job_id(), created.id());
}

TEST_F(CycleTest, AJobWhoseModelNoWorkerHasSaysSo) {
  enlist("w1", {"other-model"});
  const auto created = create_good("first");
  EXPECT_EQ(created.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(created.waiting_reason(), v1::WAITING_REASON_MODEL);
  EXPECT_EQ(get(created.id()).waiting_reason(), v1::WAITING_REASON_MODEL);
  const auto listed = call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{});
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->jobs_size(), 1);
  EXPECT_EQ(listed->jobs(0).waiting_reason(), v1::WAITING_REASON_MODEL);
  enlist("w2", {"small-model"});
  EXPECT_EQ(get(created.id()).waiting_reason(), v1::WAITING_REASON_CAPACITY);
}

TEST_F(CycleTest, TheCalibrationFileGoesToTheWorkerAndIsInUse) {
  enlist();
  v1::CreateFineTuningJobRequest request;
  const std::string rows = upload_good();
  *request.mutable_spec() = spec(upload_good());
  request.mutable_spec()->mutable_dex()->mutable_head_selection()->mutable_calibration()->set_file(
      rows);
  const auto created = create(request);
  ASSERT_TRUE(created.ok()) << created.status().to_string();
  const auto claimed = claim();
  ASSERT_TRUE(claimed.has_job());
  EXPECT_EQ(claimed.job().calibration_input().file(), rows);
  EXPECT_FALSE(claimed.job().calibration_input().sha256().empty());
  v1::DeleteFileRequest remove;
  remove.set_id(rows);
  EXPECT_EQ(call(*files_, &FileStub::DeleteFile, remove).status().reason(), "FILE_IN_USE");
}

TEST_F(CycleTest, TheGuardsProbeFileGoesToTheWorkerAndIsInUse) {
  enlist();
  v1::CreateFineTuningJobRequest request;
  const std::string rows = upload_good(), probe = upload_good();
  *request.mutable_spec() = spec(rows);
  request.mutable_spec()->set_validation_file(rows);
  auto& guard = *request.mutable_spec()->mutable_watchdog()->mutable_base_guard();
  guard.set_kl_max(0.1);
  guard.set_probe_file(probe);
  const auto created = create(request);
  ASSERT_TRUE(created.ok()) << created.status().to_string();
  const auto claimed = claim();
  ASSERT_TRUE(claimed.has_job());
  EXPECT_EQ(claimed.job().probe_input().file(), probe);
  EXPECT_FALSE(claimed.job().probe_input().sha256().empty());
  EXPECT_TRUE(std::filesystem::exists(directory_ / "data" / claimed.job().probe_input().path()));
  EXPECT_EQ(claimed.job().validation_input().file(), rows);
}

// What a script reads from `jobs create --output json` is there from the first reply on.
TEST_F(CycleTest, AQueuedJobsJsonHasEveryFieldThatIsRead) {
  google::protobuf::util::JsonPrintOptions options;  // those of dexctl
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.mutable_spec()->mutable_hyperparameters()->clear_max_steps();  // by epochs
  const auto created = create(request);
  ASSERT_TRUE(created.ok()) << created.status().to_string();
  for (const auto& job : {*created, get(created->id())}) {
    std::string text;
    ASSERT_TRUE(google::protobuf::util::MessageToJsonString(job, &text, options).ok());
    const auto json = nlohmann::json::parse(text);
    EXPECT_EQ(json.at("id"), job.id());
    EXPECT_EQ(json.at("state"), "JOB_STATE_QUEUED");
    EXPECT_EQ(json.at("attempt"), 0);
    EXPECT_EQ(json.at("progress").at("step"), 0);
    EXPECT_EQ(json.at("fine_tuned_model"), "");
  }
}

TEST_F(CycleTest, SameRequestIdGivesTheSameJob) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.set_request_id("once");
  bool replayed = true;
  const auto first = create(request, &replayed);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_FALSE(replayed);
  const auto second = create(request, &replayed);
  EXPECT_EQ(second->id(), first->id());
  EXPECT_TRUE(replayed);
  request.mutable_spec()->mutable_hyperparameters()->set_max_steps(21);
  EXPECT_EQ(create(request).status().reason(), "IDEMPOTENCY_CONFLICT");
}

TEST_F(CycleTest, SixtyFourParallelCreatesMakeOneJob) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.set_request_id("parallel");
  std::vector<std::string> ids(64);
  {
    std::vector<std::jthread> threads;
    for (auto& id : ids) {
      threads.emplace_back([&] {
        const auto job = create(request);
        id = job.ok() ? job->id() : job.status().to_string();
      });
    }
  }
  EXPECT_THAT(ids, testing::Each(ids[0]));
  EXPECT_TRUE(ids[0].starts_with("ftjob-")) << ids[0];
  support::figure("P6", "creates_that_made_one_job", static_cast<double>(ids.size()));
}

TEST_F(CycleTest, ValidateOnlyStoresNothing) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.set_validate_only(true);
  const auto job = create(request);
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_EQ(job->id(), "");
  EXPECT_TRUE(job->has_effective_config());
  EXPECT_EQ(
      call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{})->jobs_size(), 0);
}

TEST_F(CycleTest, EstimateNeedsNoJob) {
  v1::EstimateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  const auto estimate = call(*jobs_, &JobStub::EstimateFineTuningJob, request);
  ASSERT_TRUE(estimate.ok()) << estimate.status().to_string();
  EXPECT_EQ(estimate->total_steps(), 20);
  EXPECT_GT(estimate->expected_duration_seconds(), 0);
  EXPECT_LE(estimate->low_seconds(), estimate->high_seconds());
  EXPECT_GT(estimate->trained_parameters(), 0);
  EXPECT_TRUE(estimate->has_effective_config());
}

TEST_F(CycleTest, LongPollWakesOnSubmit) {
  enlist();
  iv1::ClaimResponse claimed;
  std::jthread waiting([&] { claimed = claim("w1", 15000); });
  const auto file = upload_good();
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(file);
  ASSERT_TRUE(create(request).ok());
  waiting.join();
  EXPECT_TRUE(claimed.has_job());
}

TEST_F(CycleTest, LongPollEndsWithNone) {
  enlist();
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(claim("w1", 300).has_none());
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(300));
}

TEST_F(CycleTest, ClaimIsReplayedWithTheSameJob) {
  enlist();
  create_good();
  const auto first = claim("w1", 0, "same");
  const auto second = claim("w1", 0, "same");
  EXPECT_EQ(first.SerializeAsString(), second.SerializeAsString());
}

TEST_F(CycleTest, CancelReachesTheWorkerAtItsNextBeat) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim();
  v1::CancelFineTuningJobRequest cancel;
  cancel.set_id(job.id());
  EXPECT_EQ(call(*jobs_, &JobStub::CancelFineTuningJob, cancel)->state(), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(beat(claimed.job(), 1).attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_CANCEL);
  EXPECT_EQ(finish(claimed.job(), iv1::OUTCOME_CANCELLED), "CANCELLED");
  EXPECT_EQ(get(job.id()).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(call(*jobs_, &JobStub::CancelFineTuningJob, cancel).ok());  // may be repeated
}

TEST_F(CycleTest, CancelOfAFinishedJobConflicts) {
  train_adapter();
  v1::CancelFineTuningJobRequest cancel;
  cancel.set_id(
      call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{})->jobs(0).id());
  const auto status = call(*jobs_, &JobStub::CancelFineTuningJob, cancel).status();
  EXPECT_EQ(status.code(), base::Code::kFailedPrecondition);
  EXPECT_EQ(status.reason(), "JOB_STATE_CONFLICT");
}

TEST_F(CycleTest, UsersFaultIsNamed) {
  enlist();
  const auto job = create_good();
  EXPECT_EQ(finish(claim().job(), iv1::OUTCOME_FAIL_FINAL, "invalid_hyperparameter"), "FAILED");
  const auto failed = get(job.id());
  EXPECT_EQ(failed.error().code(), "invalid_hyperparameter");
  EXPECT_EQ(failed.error().category(), "USER");
  EXPECT_EQ(failed.error().param(), "learning_rate");
  EXPECT_FALSE(failed.error().retryable());
}

TEST_F(CycleTest, LostWorkersJobGoesOnAsAttemptTwo) {
  enlist("w1");
  enlist("w2");
  const auto job = create_good();
  const auto first = claim("w1").job();
  let_lease_run_out(job.id());
  const auto second = claim("w2", 20000);  // waits for the sweep
  ASSERT_TRUE(second.has_job());
  EXPECT_EQ(second.job().job_id(), job.id());
  EXPECT_EQ(second.job().attempt(), 2U);
  EXPECT_EQ(beat(first, 1, "w1").attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_LOST);
  EXPECT_EQ(finish_well(first, "w1"), "LOST");
  EXPECT_EQ(finish_well(second.job(), "w2"), "SUCCEEDED");
  EXPECT_NE(http("/metrics").find("dex_stale_finish_total 1"), std::string::npos);
}

TEST_F(CycleTest, ResultThatIsNotOnDiskIsRefused) {
  enlist();
  create_good();
  const auto job = claim().job();
  iv1::FinishRequest request;
  request.set_worker_id("w1");
  request.set_job_id(job.job_id());
  request.set_epoch(job.epoch());
  request.set_outcome(iv1::OUTCOME_SUCCESS);
  for (const std::string& uri :
       {job.attempt_dir() + "/final", std::string("../../etc"), std::string("jobs/x")}) {
    request.mutable_result()->set_uri(uri);
    const auto status = call(*workers_, &iv1::WorkerService::Stub::Finish, request).status();
    EXPECT_EQ(status.code(), base::Code::kInvalidArgument) << uri;
  }
  EXPECT_EQ(get(job.job_id()).state(), v1::JOB_STATE_RUNNING);
}

TEST_F(CycleTest, CheckpointSurvivesARelease) {
  enlist();
  create_good();
  const auto job = claim().job();
  iv1::FinishRequest release;
  release.set_worker_id("w1");
  release.set_job_id(job.job_id());
  release.set_epoch(job.epoch());
  release.set_outcome(iv1::OUTCOME_RELEASE);
  release.mutable_checkpoint()->set_uri(job.attempt_dir() + "/step-10");
  release.mutable_checkpoint()->set_manifest_sha256("feed");
  release.mutable_checkpoint()->set_step(10);
  ASSERT_EQ(call(*workers_, &iv1::WorkerService::Stub::Finish, release)->state(), "READY");
  const auto again = claim().job();
  EXPECT_EQ(again.checkpoint().step(), 10U);
  EXPECT_EQ(again.checkpoint().manifest_sha256(), "feed");
  EXPECT_EQ(get(job.job_id()).last_checkpoint(), "step-10");
}

TEST_F(CycleTest, DrainingWorkerGetsNothingAndAGoneOneMustRegister) {
  enlist();
  create_good();
  iv1::DrainRequest drain;
  drain.set_worker_id("w1");
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Drain, drain).ok());
  EXPECT_TRUE(claim().has_drain());
  drain.set_gone(true);
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Drain, drain).ok());
  EXPECT_TRUE(claim().has_unknown());
  iv1::HeartbeatRequest beat;
  beat.set_worker_id("w1");
  EXPECT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Heartbeat, beat)->unknown());
}

TEST_F(CycleTest, PresetsGoByTheirNameWithAHyphenToo) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.mutable_spec()->mutable_dex()->set_preset("long-text");
  const auto job = create(request);
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_EQ(job->effective_config().spec().dex().preset(), "long_text");
  v1::GetPresetRequest preset;
  preset.set_name("long-text");
  EXPECT_EQ(call(*models_, &v1::ModelService::Stub::GetPreset, preset)->name(), "long_text");
  v1::ListFineTuningJobsRequest list;
  list.mutable_filter()->set_preset("long-text");
  EXPECT_EQ(call(*jobs_, &JobStub::ListFineTuningJobs, list)->jobs_size(), 1);
}

// What tells a dead run from a live one (api.md, C23).
TEST_F(CycleTest, ARunningJobShowsItsHeartbeatAndTheEndOfItsLease) {
  enlist();
  const auto made = create_good();
  EXPECT_FALSE(get(made.id()).has_heartbeat_time());
  const auto job = claimed();
  const auto given = get(made.id());
  EXPECT_EQ(rpc::unix_ms(given.heartbeat_time()), rpc::unix_ms(given.start_time()));
  EXPECT_EQ(rpc::unix_ms(given.lease_expire_time()),
            rpc::unix_ms(given.heartbeat_time()) + lease_ms_);
  ASSERT_TRUE(support::eventually([&] {  // until the store's clock has gone on
    beat(job, 1);
    return rpc::unix_ms(get(made.id()).lease_expire_time()) >
           rpc::unix_ms(given.lease_expire_time());
  }));
  // A beat that repeats another's number extends the lease; one with something new is heard.
  beat(job, 2);
  const auto heard = get(made.id());
  EXPECT_GT(rpc::unix_ms(heard.heartbeat_time()), rpc::unix_ms(given.heartbeat_time()));
  // Also in a list, where dead ones are looked for.
  const auto listed = call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{});
  ASSERT_EQ(listed->jobs_size(), 1);
  EXPECT_TRUE(listed->jobs(0).has_lease_expire_time());
  EXPECT_EQ(finish_well(job), "SUCCEEDED");
  EXPECT_FALSE(get(made.id()).has_heartbeat_time());
}

// From what runs: the trainer of the job before says how long it still needs.
TEST_F(CycleTest, AQueuedJobSaysWhenItShouldStart) {
  const auto first = create_good(), second = create_good(), third = create_good();
  EXPECT_FALSE(get(first.id()).has_estimated_start_time()) << "there is no worker";
  enlist();
  const base::SystemClock clock;
  const auto start_of = [this](const v1::FineTuningJob& job) {
    const auto now = get(job.id());
    EXPECT_TRUE(now.has_estimated_start_time()) << job.id();
    return rpc::unix_ms(now.estimated_start_time());
  };
  const int64_t first_ms = start_of(first);
  EXPECT_LE(first_ms, clock.now_ms()) << "a slot is free";
  const auto job = claimed();
  ASSERT_EQ(job.job_id(), first.id());
  iv1::HeartbeatRequest request;
  request.set_worker_id("w1");
  auto& attempt = *request.add_attempts();
  attempt.set_job_id(job.job_id());
  attempt.set_epoch(job.epoch());
  attempt.set_beat_seq(1);
  attempt.set_phase(v1::JOB_PHASE_TRAINING);
  attempt.mutable_progress()->set_step(5);
  attempt.mutable_progress()->set_estimated_remaining_seconds(500);
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Heartbeat, request).ok());
  const int64_t before_ms = clock.now_ms();
  const int64_t second_ms = start_of(second);
  EXPECT_GE(second_ms, before_ms + 500'000);
  EXPECT_LE(second_ms, clock.now_ms() + 500'000);
  EXPECT_GT(start_of(third), second_ms + 1000) << "the second one has to run first";
  EXPECT_FALSE(get(first.id()).has_estimated_start_time()) << "it runs";
  // A held-up question: nobody will come to run it.
  iv1::DrainRequest drain;
  drain.set_worker_id("w1");
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Drain, drain).ok());
  EXPECT_FALSE(get(second.id()).has_estimated_start_time());
}

TEST_F(CycleTest, ListFiltersAndPages) {
  std::vector<std::string> ids;
  const auto file = upload_good();
  for (int i = 0; i < 7; ++i) {
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(file);
    (*request.mutable_spec()->mutable_metadata())["parity"] = i % 2 == 0 ? "even" : "odd";
    if (i == 3) request.mutable_spec()->mutable_dex()->set_preset("code");
    const auto job = create(request);
    ASSERT_TRUE(job.ok()) << job.status().to_string();
    ids.insert(ids.begin(), job->id());
  }
  v1::ListFineTuningJobsRequest list;
  list.set_page_size(3);
  std::vector<std::string> seen;
  do {
    const auto page = call(*jobs_, &JobStub::ListFineTuningJobs, list);
    ASSERT_TRUE(page.ok()) << page.status().to_string();
    for (const auto& job : page->jobs()) {
      seen.push_back(job.id());
      EXPECT_FALSE(job.has_effective_config());
    }
    list.set_page_token(page->next_page_token());
  } while (!list.page_token().empty());
  EXPECT_EQ(seen, ids);

  (*list.mutable_filter()->mutable_metadata())["parity"] = "odd";
  EXPECT_EQ(call(*jobs_, &JobStub::ListFineTuningJobs, list)->jobs_size(), 3);
  list.mutable_filter()->set_preset("code");
  EXPECT_EQ(call(*jobs_, &JobStub::ListFineTuningJobs, list)->jobs_size(), 1);
  list.mutable_filter()->add_states(v1::JOB_STATE_FAILED);
  EXPECT_EQ(call(*jobs_, &JobStub::ListFineTuningJobs, list)->jobs_size(), 0);
  list.set_page_token("nonsense");
  EXPECT_EQ(call(*jobs_, &JobStub::ListFineTuningJobs, list).status().reason(), "INVALID_CURSOR");
}

TEST_F(CycleTest, TwoSchedulersShareOneQueue) {
  auto other = start(options());
  const auto other_workers = iv1::WorkerService::NewStub(connected(other->worker_address()));
  const auto job = create_good();
  enlist();
  iv1::ClaimRequest request;
  request.set_worker_id("w1");
  request.set_claim_id("elsewhere");
  request.add_pools("cpu");
  const auto claimed = call(*other_workers, &iv1::WorkerService::Stub::Claim, request);
  ASSERT_TRUE(claimed->has_job());
  EXPECT_EQ(get(job.id()).state(), v1::JOB_STATE_RUNNING);

  // A long poll at the other one hears of a job within its second.
  iv1::ClaimResponse late;
  std::jthread waiting([&] {
    request.set_slot(1);
    request.set_claim_id("late");
    request.set_wait_ms(15000);
    late = *call(*other_workers, &iv1::WorkerService::Stub::Claim, request);
  });
  const auto second = create_good();
  waiting.join();
  EXPECT_EQ(late.job().job_id(), second.id());
}

}  // namespace
}  // namespace dex::server
