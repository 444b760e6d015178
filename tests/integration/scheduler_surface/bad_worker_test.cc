// Workers that lie, repeat themselves, or have the wrong time; and specs of the largest size.
#include "tests/integration/scheduler_surface/surface_fixture.h"

namespace dex::server {
namespace {

class BadWorkerTest : public SurfaceTest {
 protected:
  BadWorkerTest() {
    enlist("w1");
    enlist("w2");
  }
  iv1::ClaimedJob claim_new() {
    create_good();
    const auto answer = claim("w1");
    EXPECT_TRUE(answer.has_job());
    return answer.job();
  }
  static void add_attempt(iv1::HeartbeatRequest& request, const iv1::ClaimedJob& job, int events) {
    auto& attempt = *request.add_attempts();
    attempt.set_job_id(job.job_id());
    attempt.set_epoch(job.epoch());
    attempt.set_beat_seq(1);
    attempt.set_phase(v1::JOB_PHASE_TRAINING);
    for (int i = 0; i < events; ++i) *attempt.add_events() = point(i);
  }
};

TEST_F(BadWorkerTest, ABeatThatIsRefusedCostsNoAttemptItsLease) {
  const auto bad = claim_new(), good = claim_new();
  iv1::HeartbeatRequest request;
  request.set_worker_id("w1");
  add_attempt(request, bad, 129);  // one more than a beat may have
  add_attempt(request, good, 3);
  const auto reply = call(*workers_, &iv1::WorkerService::Stub::Heartbeat, request);
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  ASSERT_EQ(reply->attempts_size(), 2);
  for (const auto& verdict : reply->attempts()) {
    EXPECT_EQ(verdict.verdict(), iv1::AttemptVerdict::VERDICT_OK) << verdict.job_id();
    EXPECT_GT(verdict.expires_in_ms(), 15'000);
  }
  EXPECT_EQ(listed(bad.job_id()).size(), 2U) << "queued and started: the rest could not be kept";
  EXPECT_EQ(listed(good.job_id()).size(), 5U);
  // And it does not stand in the way of the next one.
  EXPECT_EQ(beat(bad, 2, "w1", {point(1)}).attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_OK);
  EXPECT_EQ(listed(bad.job_id()).size(), 3U);
}

TEST_F(BadWorkerTest, AnEpochThatIsNotItsOwnIsLost) {
  const auto job = claim_new();
  for (const int64_t lie : {job.epoch() + 1, job.epoch() - 1, int64_t{0}, int64_t{-1}}) {
    auto liar = job;
    liar.set_epoch(lie);
    EXPECT_EQ(beat(liar, 9, "w1", {point(9)}).attempts(0).verdict(),
              iv1::AttemptVerdict::VERDICT_LOST);
    EXPECT_EQ(finish(liar, iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "LOST");
  }
  EXPECT_EQ(get(job.job_id()).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(get(job.job_id()).progress().step(), 0U);
  EXPECT_EQ(listed(job.job_id()).size(), 2U);
  EXPECT_EQ(finish_well(job), "SUCCEEDED");
}

TEST_F(BadWorkerTest, AnotherOnesJobIsNotItsToReportOf) {
  const auto job = claim_new();
  EXPECT_EQ(beat(job, 3, "w2", {point(3)}).attempts(0).verdict(),
            iv1::AttemptVerdict::VERDICT_LOST);
  EXPECT_EQ(finish(job, iv1::OUTCOME_CRASH, "", "w2"), "LOST");
  EXPECT_EQ(finish_well(job, "w2"), "LOST");
  auto unknown = job;
  unknown.set_job_id("ftjob-00000000000000000000000000");
  EXPECT_EQ(beat(unknown, 1).attempts(0).verdict(), iv1::AttemptVerdict::VERDICT_LOST);
  EXPECT_EQ(get(job.job_id()).state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(get(job.job_id()).attempt(), 1U);
}

TEST_F(BadWorkerTest, ACheckpointElsewhereIsNotTaken) {
  const auto job = claim_new(), other = claim_new();
  const std::string own = "jobs/default/" + job.job_id();
  int64_t sequence = 0;
  for (const std::string& uri :
       {other.attempt_dir() + "/step-1", std::string("../../etc/passwd"), std::string("/etc"),
        own + "/attempt-1/../../" + other.job_id() + "/attempt-1/step-1", own + "/step-1",
        own + "/attempt-x/step-1", own + "/attempt-1", own + "/attempt-1//step-1",
        "files/" + own + "/attempt-1/step-1"}) {
    const auto verdict = beat_as(job, ++sequence, [&](iv1::AttemptBeat& beat) {
      beat.mutable_checkpoint()->set_uri(uri);
      beat.mutable_checkpoint()->set_manifest_sha256("feed");
      beat.mutable_checkpoint()->set_step(1);
    });
    EXPECT_EQ(verdict.verdict(), iv1::AttemptVerdict::VERDICT_OK) << "it keeps its lease: " << uri;
    EXPECT_EQ(get(job.job_id()).last_checkpoint(), "") << uri;
  }
  EXPECT_EQ(get(job.job_id()).state(), v1::JOB_STATE_RUNNING);
  // One of an attempt before stands as well as its own.
  const auto verdict = beat_as(job, 100, [&](iv1::AttemptBeat& beat) {
    beat.mutable_checkpoint()->set_uri(own + "/attempt-1/step-1");
    beat.mutable_checkpoint()->set_step(1);
  });
  EXPECT_EQ(verdict.verdict(), iv1::AttemptVerdict::VERDICT_OK);
  EXPECT_EQ(get(job.job_id()).last_checkpoint(), "step-1");
}

// Refused, it would be left to its lease, and what was no crash be counted as one.
TEST_F(BadWorkerTest, AnEndWithACheckpointElsewhereIsTheEndThatItIs) {
  const auto job = claim_new();
  beat_as(job, 1, [&](iv1::AttemptBeat& beat) { offer(job, 1, *beat.mutable_checkpoint()); });
  const auto ended = finish_as(job, iv1::OUTCOME_RELEASE, [&](iv1::FinishRequest& request) {
    request.mutable_checkpoint()->set_uri("/etc/passwd");
    request.mutable_checkpoint()->set_step(2);
  });
  ASSERT_TRUE(ended.ok()) << ended.status().to_string();
  EXPECT_EQ(ended->state(), "READY");
  const auto counted = [&](const char* counter) {
    return redis_.call({"HGET", "dex:{s0}:job:" + job.job_id(), counter}).as_int();
  };
  EXPECT_EQ(counted("crashes"), 0);
  EXPECT_EQ(counted("preempts"), 1);
  const auto next = claim("w1");
  ASSERT_TRUE(next.has_job());
  EXPECT_EQ(next.job().checkpoint().uri(), job.attempt_dir() + "/step-1") << "the last good one";
}

TEST_F(BadWorkerTest, AClaimThatIsRepeatedForEverIsOneJob) {
  create_good();
  const auto second = create_good();
  const auto first = claim("w1", 0, "same");
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(claim("w1", 0, "same").SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(get(second.id()).state(), v1::JOB_STATE_QUEUED);
  // The id is the slot's: with another worker it is another claim.
  EXPECT_EQ(claim("w2", 0, "same").job().job_id(), second.id());
  EXPECT_EQ(finish_well(first.job()), "SUCCEEDED");
  EXPECT_TRUE(claim("w1", 0, "same").has_stale());
}

TEST_F(BadWorkerTest, AClockTenMinutesOffMovesNoLeaseAndNoOrder) {
  const auto job = claim_new();
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count();
  std::vector<v1::FineTuningEvent> events = {point(1), point(2), point(3)};
  events[0].mutable_create_time()->set_seconds(now + 600);
  events[1].mutable_create_time()->set_seconds(now - 600);
  events[2].mutable_create_time()->set_seconds(now);
  const auto verdict = beat(job, 1, "w1", events).attempts(0);
  EXPECT_EQ(verdict.verdict(), iv1::AttemptVerdict::VERDICT_OK);
  EXPECT_GT(verdict.expires_in_ms(), 15'000);
  EXPECT_LE(verdict.expires_in_ms(), lease_ms_);
  EXPECT_EQ(listed(job.job_id()), (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_NEAR(static_cast<double>(get(job.job_id()).start_time().seconds()),
              static_cast<double>(now), 60);
  EXPECT_EQ(finish_well(job), "SUCCEEDED");
  EXPECT_EQ(watched(job.job_id()), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
}

// The resolved spec may have 32 KiB; a name makes it any size.
TEST_F(BadWorkerTest, ASpecBeyond32KiBIsRefusedAndOneBelowIsRun) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.mutable_spec()->set_seed(1);  // one that is chosen takes more or fewer bytes
  request.set_validate_only(true);
  const auto fits = [&](size_t length) {
    request.mutable_spec()->set_display_name(std::string(length, 'n'));
    return create(request);
  };
  size_t below = 1, above = 32 << 10;
  ASSERT_TRUE(fits(below).ok());
  ASSERT_FALSE(fits(above).ok());
  while (above - below > 1) {
    const size_t middle = (below + above) / 2;
    (fits(middle).ok() ? below : above) = middle;
  }
  const auto largest = fits(below);
  ASSERT_TRUE(largest.ok()) << largest.status().to_string();
  EXPECT_LE(largest->ByteSizeLong(), 32U << 10);
  EXPECT_GT(largest->ByteSizeLong(), (32U << 10) - 64) << "a few bytes more are too many";
  const auto refused = fits(above).status();
  EXPECT_EQ(refused.reason(), "TOO_LARGE") << refused.to_string();
  ASSERT_FALSE(refused.violations().empty());
  EXPECT_EQ(refused.violations()[0].field, "spec");

  request.set_validate_only(false);
  request.mutable_spec()->set_display_name(std::string(below - 8, 'n'));
  const auto job = create(request);
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  const auto answer = claim("w1");
  ASSERT_TRUE(answer.has_job());
  EXPECT_EQ(answer.job().spec().display_name().size(), below - 8);
}

}  // namespace
}  // namespace dex::server
