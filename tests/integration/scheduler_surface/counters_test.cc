// P18: what the scheduler counts is what has happened, by the store's own event stream.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/integration/scheduler_surface/surface_fixture.h"
#include "tests/support/event_counts.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"

namespace dex::server {
namespace {

class CountersTest : public SurfaceTest {
 protected:
  CountersTest() { enlist(); }

  // The next attempt, whatever back-off there is before it. One job waits at a time.
  iv1::ClaimedJob next_attempt() {
    iv1::ClaimResponse answer;
    EXPECT_TRUE(support::eventually([&] {
      answer = claim("w1", 1'000);
      return answer.has_job();
    }));
    return answer.job();
  }
  iv1::ClaimedJob started() {
    create_good();
    return next_attempt();
  }
  void cancel_job(const std::string& id) {
    v1::CancelFineTuningJobRequest request;
    request.set_id(id);
    EXPECT_TRUE(call(*jobs_, &JobStub::CancelFineTuningJob, request).ok());
  }
  // As if its time had passed: the next sweep meets it.
  void run_out(const std::string& set, const std::string& field, const std::string& id) {
    redis_.call({"HSET", "dex:{s0}:job:" + id, field, "1"});
    redis_.call({"ZADD", "dex:{s0}:" + set, "1", id});
  }
  bool becomes(const std::string& id, v1::JobState state) {
    return support::eventually([&] { return get(id).state() == state; }, support::kPatience_ms);
  }

  // Each way in which an attempt ends and the job goes on, and then ends well.
  void go_through_failures() {
    for (const auto outcome : {iv1::OUTCOME_FAIL_RETRY, iv1::OUTCOME_CRASH, iv1::OUTCOME_OOM,
                               iv1::OUTCOME_DISK_FULL, iv1::OUTCOME_RELEASE}) {
      finish(started(), outcome, "internal");
      EXPECT_EQ(finish_well(next_attempt()), "SUCCEEDED");
    }
    const auto failed = started();
    EXPECT_EQ(finish(failed, iv1::OUTCOME_FAIL_FINAL, "loss_diverged"), "FAILED");
    EXPECT_TRUE(redrive(failed.job_id()).ok());
    for (int i = 0; i < 3; ++i) finish(next_attempt(), iv1::OUTCOME_CRASH, "internal");
    EXPECT_EQ(get(failed.job_id()).error().code(), "poison_job");
    const auto paused = started();
    EXPECT_TRUE(pause(paused.job_id()).ok());
    EXPECT_EQ(finish(paused, iv1::OUTCOME_PAUSED), "PAUSED");
    EXPECT_TRUE(resume(paused.job_id()).ok());
    EXPECT_EQ(finish_well(next_attempt()), "SUCCEEDED");
  }

  // Cancelled and expired: while they wait, while they run, and too late.
  void go_through_ends() {
    const auto waiting = create_good();
    cancel_job(waiting.id());
    cancel_job(waiting.id());  // may be repeated, and counts once
    const auto running = started();
    cancel_job(running.job_id());
    EXPECT_EQ(finish(running, iv1::OUTCOME_CANCELLED), "CANCELLED");
    const auto done = started();
    cancel_job(done.job_id());
    EXPECT_EQ(finish_well(done), "SUCCEEDED");

    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(upload_good());
    request.mutable_spec()->set_deadline_seconds(3600);
    const auto late = create(request);
    ASSERT_TRUE(late.ok()) << late.status().to_string();
    run_out("deadline", "deadline_ms", late->id());
    EXPECT_TRUE(becomes(late->id(), v1::JOB_STATE_EXPIRED));
    ASSERT_TRUE(create(request).ok());
    const auto stopped = next_attempt();
    run_out("deadline", "deadline_ms", stopped.job_id());
    EXPECT_TRUE(becomes(stopped.job_id(), v1::JOB_STATE_CANCELLING));
    EXPECT_EQ(finish(stopped, iv1::OUTCOME_CANCELLED), "CANCELLED");
  }

  // Leases that run out, of a job that goes on and of one that was told to stop.
  void go_through_lost_leases() {
    const auto lost = started();
    run_out("lease", "lease_ms", lost.job_id());
    EXPECT_TRUE(becomes(lost.job_id(), v1::JOB_STATE_QUEUED));
    EXPECT_EQ(finish(lost, iv1::OUTCOME_CRASH, "internal"), "LOST");
    EXPECT_EQ(finish_well(next_attempt()), "SUCCEEDED");
    const auto cancelled = started();
    cancel_job(cancelled.job_id());
    run_out("lease", "lease_ms", cancelled.job_id());
    EXPECT_TRUE(becomes(cancelled.job_id(), v1::JOB_STATE_CANCELLED));
  }

  // Calls whose answers were lost: what comes again is counted once.
  void go_through_repeats() {
    const auto job = create_good("once");
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(job.training_file());
    request.set_request_id("once");
    bool replayed = false;
    EXPECT_TRUE(create(request, &replayed).ok());
    EXPECT_TRUE(replayed);
    const auto first = claim("w1", 0, "the-same").job();
    EXPECT_EQ(claim("w1", 0, "the-same").job().job_id(), first.job_id());
    EXPECT_EQ(finish_well(first), "SUCCEEDED");
    EXPECT_EQ(finish_well(first), "SUCCEEDED");
  }

  // A job whose adapter has gone is claimed and ends at once: the worker hears nothing of it.
  void go_through_a_job_that_cannot_start() {
    const std::string adapter = train_adapter();
    v1::CreateFineTuningJobRequest request;
    *request.mutable_spec() = spec(upload_good());
    request.mutable_spec()->set_model(adapter);
    const auto job = create(request);
    ASSERT_TRUE(job.ok()) << job.status().to_string();
    redis_.call({"DEL", "dex:{s0}:adapter:" + adapter});
    EXPECT_FALSE(claim().has_job());
    EXPECT_EQ(get(job->id()).state(), v1::JOB_STATE_FAILED);
  }
};

TEST_F(CountersTest, TheySayWhatTheEventsSay) {
  go_through_failures();
  go_through_ends();
  go_through_lost_leases();
  go_through_repeats();
  go_through_a_job_that_cannot_start();

  support::EventCounts events;
  events.add(support::read_store([&](const std::vector<std::string>& args) {
               return redis_.call(args);
             }).events);
  EXPECT_GE(events.events(), 60);
  std::vector<std::string> wrong;
  // A sweep counts after it has swept.
  support::eventually(
      [&] {
        const std::string page = http("/metrics");
        wrong = events.differences(
            support::read_counters([&](const std::string& metric, const std::string& label) {
              return support::sum_on_page(page, metric, label);
            }));
        return wrong.empty();
      },
      support::kPatience_ms);
  EXPECT_THAT(wrong, testing::IsEmpty());
  EXPECT_NE(http("/metrics").find("dex_stale_finish_total 1"), std::string::npos);
  support::figure("P18", "events_counted", events.events());
}

// The judgement itself: it sees what is missing and what is too much.
TEST(EventCountsTest, SeesWhatDiffers) {
  support::EventCounts events;
  events.add({{"1", "a", "READY", "", "", "submit"},
              {"2", "a", "RUNNING", "7", "w", "claim"},
              {"3", "a", "CANCELLING", "7", "", "deadline_exceeded"},
              {"4", "a", "CANCELLED", "7", "w", "lease_expired"}});
  const auto page = [](const std::string& lost) {
    return "# TYPE dex_job_claims_total counter\n"
           "dex_job_submits_total{kind=\"finetune\",outcome=\"created\"} 1\n"
           "dex_job_submits_total{kind=\"finetune\",outcome=\"replayed\"} 5\n"
           "dex_job_claims_total{pool=\"cpu\"} 1\n"
           "dex_lease_lost_total " +
           lost +
           "\ndex_job_attempts_total{end=\"worker_lost\",pool=\"cpu\"} 1\n"
           "dex_job_finishes_total{kind=\"finetune\",outcome=\"expired\",pool=\"cpu\"} 1\n";
  };
  const auto differ = [&](const std::string& lost, bool some_lost) {
    return events.differences(
        support::read_counters([&](const std::string& metric, const std::string& label) {
          return support::sum_on_page(page(lost), metric, label);
        }),
        some_lost);
  };
  EXPECT_THAT(differ("1", false), testing::IsEmpty());
  EXPECT_THAT(differ("0", false),
              testing::ElementsAre("dex_lease_lost_total{} is 0, by the events 1"));
  EXPECT_THAT(differ("0", true), testing::IsEmpty());
  EXPECT_THAT(differ("2", true), testing::SizeIs(1));
  events.start_again();
  EXPECT_THAT(differ("1", false), testing::SizeIs(7)) << "nothing has happened since";
}

}  // namespace
}  // namespace dex::server
