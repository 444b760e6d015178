// Pause, resume, update and redrive, over the RPCs.
#include "tests/integration/scheduler_surface/surface_fixture.h"

namespace dex::server {
namespace {

class JobChangeTest : public SurfaceTest {
 protected:
  v1::FineTuningJob create_held() {
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(upload_good());
    request.mutable_spec()->set_auto_start(false);
    const auto job = create(request);
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job.ok() ? *job : v1::FineTuningJob();
  }
  // The attempt has checked its job and ends.
  std::string finish_checked(const iv1::ClaimedJob& job) {
    const auto ended = finish_as(job, iv1::OUTCOME_PAUSED, [](iv1::FinishRequest&) {});
    EXPECT_TRUE(ended.ok()) << ended.status().to_string();
    return ended.ok() ? ended->state() : "";
  }
};

TEST_F(JobChangeTest, AWaitingJobPausesAtOnceAndKeepsItsCheckedSpec) {
  enlist();
  const auto job = create_good();
  const auto paused = pause(job.id());
  ASSERT_TRUE(paused.ok()) << paused.status().to_string();
  EXPECT_EQ(paused->state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(paused->pause_reason(), v1::PAUSE_REASON_USER);
  EXPECT_FALSE(claim().has_job());
  EXPECT_EQ(pause(job.id())->state(), v1::JOB_STATE_PAUSED);  // may be repeated

  const auto resumed = resume(job.id());
  ASSERT_TRUE(resumed.ok()) << resumed.status().to_string();
  EXPECT_EQ(resumed->state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(resumed->pause_reason(), v1::PAUSE_REASON_UNSPECIFIED);
  EXPECT_EQ(claim().job().job_id(), job.id());
}

TEST_F(JobChangeTest, ARunningJobPausesWithItsCheckpointAndGoesOnFromIt) {
  enlist();
  const auto job = create_good();
  const auto first = claim().job();
  EXPECT_EQ(pause(job.id())->state(), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(beat(first, 1).attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_PAUSE);
  const auto ended = finish_as(first, iv1::OUTCOME_PAUSED, [&](iv1::FinishRequest& request) {
    offer(first, 5, *request.mutable_checkpoint());
  });
  ASSERT_TRUE(ended.ok()) << ended.status().to_string();
  EXPECT_EQ(ended->state(), "PAUSED");
  EXPECT_EQ(get(job.id()).last_checkpoint(), "step-5");

  EXPECT_EQ(resume(job.id())->state(), v1::JOB_STATE_QUEUED);
  const auto second = claim().job();
  EXPECT_EQ(second.attempt(), 2U);
  EXPECT_EQ(second.checkpoint().uri(), first.attempt_dir() + "/step-5");
  EXPECT_EQ(beat(second, 1).attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_OK);
}

TEST_F(JobChangeTest, AResumeTakesBackAPauseThatHasNotHappened) {
  enlist();
  const auto job = create_good();
  const auto claimed = claim().job();
  EXPECT_EQ(pause(job.id())->state(), v1::JOB_STATE_PAUSING);
  EXPECT_EQ(resume(job.id())->state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(beat(claimed, 1).attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_OK);
}

TEST_F(JobChangeTest, AJobThatDoesNotStartByItselfIsCheckedAndWaits) {
  enlist();
  const auto job = create_held();
  EXPECT_EQ(job.state(), v1::JOB_STATE_QUEUED);
  EXPECT_FALSE(job.effective_config().spec().auto_start());
  const auto check = claim().job();
  ASSERT_EQ(check.job_id(), job.id());
  EXPECT_TRUE(check.hold());
  v1::FineTuningEvent event;
  event.set_type("estimate_updated");
  event.mutable_estimate_updated()->set_total_steps(20);
  beat(check, 1, "w1", {event});
  EXPECT_EQ(finish_checked(check), "PAUSED");

  const auto held = get(job.id());
  EXPECT_EQ(held.state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(held.pause_reason(), v1::PAUSE_REASON_AWAITING_START);
  EXPECT_FALSE(claim().has_job()) << "it waits for its user";
  v1::ListFineTuningEventsRequest request;
  request.set_id(job.id());
  const auto events = call(*jobs_, &JobStub::ListFineTuningEvents, request);
  ASSERT_TRUE(events.ok()) << events.status().to_string();
  int measured = 0;
  for (const auto& each : events->events()) {
    if (each.type() != "estimate_updated") continue;
    ++measured;
    EXPECT_EQ(each.estimate_updated().total_steps(), 20);
  }
  EXPECT_EQ(measured, 1);

  EXPECT_EQ(resume(job.id())->state(), v1::JOB_STATE_QUEUED);
  const auto start = claim().job();
  EXPECT_EQ(start.job_id(), job.id());
  EXPECT_FALSE(start.hold());
  EXPECT_EQ(start.attempt(), 2U);
  EXPECT_EQ(finish_well(start), "SUCCEEDED");
}

TEST_F(JobChangeTest, AResumeBeforeTheCheckHasEndedMeansStart) {
  enlist();
  const auto queued = create_held();
  EXPECT_EQ(resume(queued.id())->state(), v1::JOB_STATE_QUEUED);
  const auto at_once = claim().job();
  EXPECT_FALSE(at_once.hold()) << "nobody waits for a check";
  EXPECT_EQ(finish_well(at_once), "SUCCEEDED");

  const auto running = create_held();
  const auto check = claim().job();
  EXPECT_TRUE(check.hold());
  EXPECT_TRUE(resume(running.id()).ok());
  EXPECT_EQ(finish_checked(check), "READY");
  EXPECT_FALSE(claim().job().hold());
}

// A lost worker, a drain, memory: the check is done again, and the job held all the same.
TEST_F(JobChangeTest, ACheckThatDidNotEndIsDoneAgain) {
  enlist();
  const auto job = create_held();
  EXPECT_EQ(finish(claim().job(), iv1::OUTCOME_RELEASE), "READY");
  EXPECT_EQ(finish(claim().job(), iv1::OUTCOME_OOM, "out_of_memory"), "READY");
  const auto third = claim().job();
  EXPECT_TRUE(third.hold());
  EXPECT_EQ(third.oom_retries(), 1U);
  EXPECT_EQ(finish_checked(third), "PAUSED");
  EXPECT_EQ(get(job.id()).pause_reason(), v1::PAUSE_REASON_AWAITING_START);
}

TEST_F(JobChangeTest, AnEndedJobIsNeitherPausedNorResumedNorReprioritised) {
  train_adapter();
  const auto list = call(*jobs_, &JobStub::ListFineTuningJobs, v1::ListFineTuningJobsRequest{});
  const std::string id = list->jobs(0).id();
  for (const auto& status : {pause(id).status(), resume(id).status(), redrive(id).status()}) {
    EXPECT_EQ(status.code(), base::Code::kFailedPrecondition);
    EXPECT_EQ(status.reason(), "JOB_STATE_CONFLICT");
    EXPECT_NE(status.message().find("SUCCEEDED"), std::string::npos) << status.message();
  }
  v1::UpdateFineTuningJobRequest request;
  request.set_id(id);
  request.set_priority(1);
  EXPECT_EQ(update(request).status().reason(), "JOB_STATE_CONFLICT");
  request.clear_priority();
  request.set_display_name("the good one");
  EXPECT_EQ(update(request)->display_name(), "the good one");
}

TEST_F(JobChangeTest, ARequestIdCountsOnceAndBelongsToItsBody) {
  const auto job = create_good(), other = create_good();
  bool replayed = true;
  ASSERT_TRUE(pause(job.id(), "once", &replayed).ok());
  EXPECT_FALSE(replayed);
  ASSERT_TRUE(resume(job.id()).ok());
  const auto again = pause(job.id(), "once", &replayed);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_TRUE(replayed);
  EXPECT_EQ(again->state(), v1::JOB_STATE_QUEUED) << "a late repeat pauses nothing";

  for (const auto& status : {pause(other.id(), "once").status(), resume(job.id(), "once").status(),
                             remove(job.id(), false, "once").status()}) {
    EXPECT_EQ(status.code(), base::Code::kAlreadyExists) << status.to_string();
    EXPECT_EQ(status.reason(), "IDEMPOTENCY_CONFLICT");
  }
  EXPECT_EQ(pause(job.id(), std::string(65, 'x')).status().reason(), "INVALID_FIELD");
}

TEST_F(JobChangeTest, UnknownJobsAndOtherKindsOfIds) {
  for (const std::string id : {"ftjob-00000000000000000000000000", "eval-1", "../x"}) {
    EXPECT_EQ(pause(id).status().reason(), "RESOURCE_NOT_FOUND") << id;
    EXPECT_EQ(resume(id).status().reason(), "RESOURCE_NOT_FOUND") << id;
    EXPECT_EQ(redrive(id).status().reason(), "RESOURCE_NOT_FOUND") << id;
    EXPECT_EQ(remove(id).status().reason(), "RESOURCE_NOT_FOUND") << id;
  }
  EXPECT_EQ(pause("").status().reason(), "MISSING_FIELD");
}

TEST_F(JobChangeTest, AnUpdateIsSeenEverywhere) {
  enlist();
  const auto first = create_good(), second = create_good();
  EXPECT_EQ(second.priority(), 4U);
  v1::UpdateFineTuningJobRequest request;
  request.set_id(second.id());
  request.set_etag(second.etag());
  request.set_priority(6);
  request.set_display_name("before the other");
  (*request.mutable_metadata())["team"] = "search";
  const auto updated = update(request);
  ASSERT_TRUE(updated.ok()) << updated.status().to_string();
  EXPECT_EQ(updated->priority(), 6U);
  EXPECT_EQ(updated->display_name(), "before the other");
  EXPECT_EQ(updated->metadata().at("team"), "search");
  EXPECT_NE(updated->etag(), second.etag());

  request.set_display_name("too late");
  const auto stale = update(request).status();
  EXPECT_EQ(stale.code(), base::Code::kAborted);
  EXPECT_EQ(stale.reason(), "ETAG_MISMATCH");
  EXPECT_EQ(get(second.id()).display_name(), "before the other");

  v1::ListFineTuningJobsRequest list;
  (*list.mutable_filter()->mutable_metadata())["team"] = "search";
  const auto found = call(*jobs_, &JobStub::ListFineTuningJobs, list);
  ASSERT_EQ(found->jobs_size(), 1);
  EXPECT_EQ(found->jobs(0).id(), second.id());
  EXPECT_EQ(claim().job().job_id(), second.id()) << "priority 6 before 4";

  v1::UpdateFineTuningJobRequest clear;
  clear.set_id(second.id());
  clear.set_clear_metadata(true);
  EXPECT_EQ(update(clear)->metadata_size(), 0);
  EXPECT_EQ(get(second.id()).display_name(), "before the other");
}

TEST_F(JobChangeTest, AnUpdateRefusesWhatItCantTake) {
  const auto job = create_good();
  v1::UpdateFineTuningJobRequest request;
  request.set_id(job.id());
  EXPECT_EQ(update(request).status().reason(), "MISSING_FIELD");
  request.set_priority(10);
  EXPECT_EQ(update(request).status().reason(), "VALUE_OUT_OF_RANGE");
  request.clear_priority();
  request.set_display_name(std::string(257, 'n'));
  EXPECT_EQ(update(request).status().reason(), "INVALID_FIELD");
  request.clear_display_name();
  (*request.mutable_metadata())["key"] = std::string(513, 'v');
  EXPECT_EQ(update(request).status().reason(), "TOO_LARGE");
  (*request.mutable_metadata())["key"] = "v";
  request.set_clear_metadata(true);
  EXPECT_EQ(update(request).status().reason(), "CONFLICTING_FIELDS");
  request.set_clear_metadata(false);
  for (int i = 0; i < 16; ++i) (*request.mutable_metadata())[std::to_string(i)] = "v";
  EXPECT_EQ(update(request).status().reason(), "TOO_LARGE");
  EXPECT_EQ(get(job.id()).etag(), job.etag()) << "nothing has changed";
}

TEST_F(JobChangeTest, AFailedJobGetsAnotherLifeFromItsCheckpoint) {
  enlist();
  const auto job = create_good();
  const auto first = claim().job();
  const auto ended = finish_as(first, iv1::OUTCOME_FAIL_FINAL, [&](iv1::FinishRequest& request) {
    request.set_code("loss_diverged");
    request.set_message("it grew");
    offer(first, 8, *request.mutable_checkpoint());
  });
  ASSERT_EQ(ended->state(), "FAILED");

  bool replayed = true;
  const auto redriven = redrive(job.id(), "again", &replayed);
  ASSERT_TRUE(redriven.ok()) << redriven.status().to_string();
  EXPECT_FALSE(replayed);
  EXPECT_EQ(redriven->state(), v1::JOB_STATE_QUEUED);
  EXPECT_FALSE(redriven->has_error());
  EXPECT_TRUE(redrive(job.id(), "again", &replayed).ok());
  EXPECT_TRUE(replayed);
  EXPECT_EQ(redrive(job.id(), "another").status().reason(), "JOB_STATE_CONFLICT");

  const auto second = claim().job();
  EXPECT_EQ(second.job_id(), job.id());
  EXPECT_GT(second.epoch(), first.epoch());
  EXPECT_EQ(second.checkpoint().step(), 8U);
  EXPECT_EQ(finish_well(second), "SUCCEEDED");

  v1::RedriveFineTuningJobRequest request;
  request.set_id(job.id());
  request.set_deadline_seconds(-1);
  EXPECT_EQ(call(*admin_, &AdminStub::RedriveFineTuningJob, request).status().reason(),
            "VALUE_OUT_OF_RANGE");
}

}  // namespace
}  // namespace dex::server
