// Each transition of jobs.md §2 and the refusals beside it.
#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/invariants.h"

namespace dex::store {
namespace {

using testing::Test;
using Verdict = JobRepository::Verdict;
using ClaimAnswer = JobRepository::ClaimAnswer;

class TransitionTest : public StoreTest {
 protected:
  TransitionTest() { enlist("w1"); }
  ClaimedJob running() {
    submit();
    const auto claimed = claim("w1");
    EXPECT_EQ(claimed.answer, ClaimAnswer::kJob);
    return claimed.job;
  }
};

TEST_F(TransitionTest, SubmitMakesReadyOrDelayed) {
  const auto ready = submit();
  NewJob later;
  later.delay_ms = 5000;
  const auto delayed = submit("default", later);
  EXPECT_EQ(state(ready), "READY");
  EXPECT_EQ(state(delayed), "DELAYED");
  EXPECT_EQ(job(ready).queue_position, 1);
  EXPECT_EQ(job(ready).spec, "spec of " + ready);
}

TEST_F(TransitionTest, ClaimBeatFinishPublishesOnce) {
  NewJob with_adapter;
  with_adapter.adapter = "ft:base:default::1";
  const auto id = submit("default", with_adapter);
  const auto claimed = claim("w1");
  ASSERT_EQ(claimed.answer, ClaimAnswer::kJob);
  EXPECT_EQ(claimed.job.attempt, 1);
  EXPECT_GE(claimed.job.epoch, clock_.now_ms());
  clock_.advance_ms(1000);
  const auto verdict = beat(claimed.job, "w1", 1);
  EXPECT_EQ(verdict.verdict, Verdict::kOk);
  EXPECT_EQ(verdict.expires_ms, clock_.now_ms() + store_->times().lease_ms);
  EXPECT_EQ(job(id).progress, "progress 1");
  EXPECT_EQ(job(id).phase, "TRAINING");

  const auto done = finish(claimed.job, "w1", "success");
  EXPECT_EQ(done.state, "SUCCEEDED");
  EXPECT_EQ(done.run_seconds, 1.0);
  const auto adapter = adapters_->get("default", with_adapter.adapter);
  ASSERT_TRUE(adapter.ok()) << adapter.status().to_string();
  EXPECT_EQ(adapter->job, id);
  EXPECT_EQ(adapter->uri, "jobs/" + id + "/final");
  EXPECT_EQ(log_types(id), (std::vector<std::string>{"job_queued", "job_start", "job_complete"}));

  const std::string before = dump_all(server());
  const auto again = finish(claimed.job, "w1", "success");
  EXPECT_TRUE(again.replayed);
  EXPECT_EQ(again.state, "SUCCEEDED");
  EXPECT_TRUE(finish(claimed.job, "w2", "success").lost);  // not the one who finished it
  EXPECT_EQ(dump_all(server()), before);
}

TEST_F(TransitionTest, BeatOfARepeatedSequenceStoresNothingTwice) {
  const auto claimed = running();
  JobRepository::Beat first{"w1", claimed.id, claimed.epoch, 1, "TRAINING", "p", {}, {}};
  first.events = {{0, "INFO", "metrics", "step 1", "bytes\0with zero"}};
  ASSERT_TRUE(jobs_->beat(first)->fresh);
  const std::string before = dump_all(server());
  EXPECT_FALSE(jobs_->beat(first)->fresh);
  EXPECT_EQ(dump_all(server()), before);
  EXPECT_EQ(log_types(claimed.id).back(), "metrics");
}

TEST_F(TransitionTest, FailureIsRetriedThenFinal) {
  NewJob one_retry;
  one_retry.max_fail = 1;
  const auto id = submit("default", one_retry);
  auto claimed = claim("w1").job;
  EXPECT_EQ(finish(claimed, "w1", "fail_retry").state, "DELAYED");
  EXPECT_EQ(claim("w1").answer, ClaimAnswer::kNone);
  clock_.advance_ms(store_->times().retry_backoff_ms);
  ASSERT_TRUE(store_->sweep().ok());
  EXPECT_EQ(state(id), "READY");
  claimed = claim("w1").job;
  EXPECT_EQ(claimed.attempt, 2);
  EXPECT_EQ(finish(claimed, "w1", "fail_retry").state, "FAILED");
  EXPECT_EQ(job(id).why_code, "internal");
  EXPECT_EQ(job(id).failures, 2);
}

TEST_F(TransitionTest, CrashesHaveTheirOwnBudget) {
  const auto first = running();
  EXPECT_EQ(finish(first, "w1", "crash").state, "READY");  // the first at once
  const auto second = claim("w1").job;
  EXPECT_EQ(finish(second, "w1", "crash").state, "DELAYED");
  clock_.advance_ms(store_->times().crash_backoff_ms);
  ASSERT_TRUE(store_->sweep().ok());
  const auto third = claim("w1").job;
  EXPECT_EQ(finish(third, "w1", "crash").state, "FAILED");
  EXPECT_EQ(job(first.id).why_code, "poison_job");
  EXPECT_EQ(job(first.id).failures, 0);
}

TEST_F(TransitionTest, OutOfMemoryIsTriedOnceMore) {
  const auto first = running();
  EXPECT_EQ(finish(first, "w1", "oom").state, "READY");
  const auto second = claim("w1").job;
  EXPECT_EQ(second.ooms, 1);
  EXPECT_EQ(finish(second, "w1", "oom").state, "FAILED");
  EXPECT_EQ(job(first.id).why_code, "out_of_memory");
}

TEST_F(TransitionTest, FourthFullDiskPauses) {
  auto claimed = running();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(finish(claimed, "w1", "disk_full").state, "READY");
    claimed = claim("w1").job;
  }
  EXPECT_EQ(finish(claimed, "w1", "disk_full").state, "PAUSED");
  EXPECT_EQ(job(claimed.id).pause_reason, "DISK_FULL");
  EXPECT_EQ(job(claimed.id).failures + job(claimed.id).crashes, 0);
}

TEST_F(TransitionTest, ReleaseKeepsThePlaceInTheQueue) {
  const auto first = running();
  clock_.advance_ms(1000);
  const auto second = submit();
  JobRepository::Finish release{"w1", first.id, first.epoch, "release",
                                "",   "",       "",          {"ck", "sha", 7}};
  ASSERT_EQ(jobs_->finish(release)->state, "READY");
  const auto again = claim("w1").job;
  EXPECT_EQ(again.id, first.id);
  EXPECT_EQ(again.checkpoint.uri, "ck");
  EXPECT_EQ(again.checkpoint.step, 7);
  EXPECT_EQ(job(first.id).preempts, 1);
}

TEST_F(TransitionTest, HundredAndFirstReleaseFails) {
  auto claimed = running();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(finish(claimed, "w1", "release").state, "READY");
    claimed = claim("w1").job;
  }
  EXPECT_EQ(finish(claimed, "w1", "release").state, "FAILED");
}

TEST_F(TransitionTest, CancelOfAWaitingJobIsImmediate) {
  const auto id = submit();
  const auto first = jobs_->cancel("default", id, "changed my mind");
  EXPECT_EQ(first->state, "CANCELLED");
  EXPECT_TRUE(first->ended);
  EXPECT_EQ(job(id).why, "changed my mind");
  const auto again = jobs_->cancel("default", id, "again");  // may be repeated
  EXPECT_EQ(again->state, "CANCELLED");
  EXPECT_FALSE(again->ended) << "that was the first one";
  EXPECT_EQ(jobs_->cancel("other", id, "").status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(claim("w1").answer, ClaimAnswer::kNone);
}

TEST_F(TransitionTest, CancelOfARunningJobIsOrderedAtTheNextBeat) {
  const auto claimed = running();
  const auto asked = jobs_->cancel("default", claimed.id, "stop");
  EXPECT_EQ(asked->state, "CANCELLING");
  EXPECT_FALSE(asked->ended);
  EXPECT_EQ(beat(claimed, "w1", 1).verdict, Verdict::kCancel);
  EXPECT_EQ(finish(claimed, "w1", "cancelled").state, "CANCELLED");
  EXPECT_EQ(log_types(claimed.id).back(), "job_cancelled");
}

TEST_F(TransitionTest, SuccessBeatsALateCancel) {
  const auto claimed = running();
  ASSERT_TRUE(jobs_->cancel("default", claimed.id, "late").ok());
  EXPECT_EQ(finish(claimed, "w1", "success").state, "SUCCEEDED");
  EXPECT_EQ(jobs_->cancel("default", claimed.id, "later").status().reason(), "JOB_STATE_CONFLICT");
}

TEST_F(TransitionTest, ARepeatedCancelHasItsFirstResult) {
  const RequestKey request{"r", "body"};
  const auto claimed = running();
  EXPECT_EQ(jobs_->cancel("default", claimed.id, "late", request)->state, "CANCELLING");
  EXPECT_EQ(finish(claimed, "w1", "success").state, "SUCCEEDED");
  EXPECT_TRUE(jobs_->cancel("default", claimed.id, "late", request)->replayed);
  EXPECT_EQ(jobs_->cancel("default", claimed.id, "late", {"r", "other"}).status().reason(),
            "IDEMPOTENCY_CONFLICT");
  // A refused call is not remembered: what it asked for may be right the next time.
  EXPECT_EQ(jobs_->cancel("default", "ftjob-x", "", {"s", "body"}).status().reason(),
            "RESOURCE_NOT_FOUND");
  EXPECT_TRUE(store_->made_by("default", {"s", "body"})->empty());
}

TEST_F(TransitionTest, AnyOtherEndOfACancelledAttemptCancels) {
  for (const std::string outcome :
       {"fail_retry", "fail_final", "crash", "oom", "disk_full", "release", "paused"}) {
    const auto claimed = running();
    ASSERT_TRUE(jobs_->cancel("default", claimed.id, "stop").ok());
    EXPECT_EQ(finish(claimed, "w1", outcome).state, "CANCELLED") << outcome;
    EXPECT_EQ(job(claimed.id).why_code, "cancelled");
  }
}

TEST_F(TransitionTest, PauseAndResume) {
  const auto waiting = submit();
  EXPECT_EQ(jobs_->pause("default", waiting)->state, "PAUSED");
  EXPECT_EQ(jobs_->pause("default", waiting)->state, "PAUSED");
  EXPECT_EQ(claim("w1").answer, ClaimAnswer::kNone);
  EXPECT_EQ(jobs_->resume("default", waiting)->state, "READY");

  const auto claimed = claim("w1").job;
  EXPECT_EQ(jobs_->pause("default", claimed.id)->state, "RUNNING");
  EXPECT_EQ(beat(claimed, "w1", 1).verdict, Verdict::kPause);
  EXPECT_EQ(finish(claimed, "w1", "paused").state, "PAUSED");
  EXPECT_EQ(job(claimed.id).pause_reason, "USER");
  EXPECT_EQ(jobs_->resume("default", claimed.id)->state, "READY");
}

TEST_F(TransitionTest, PauseSurvivesACrashAndIsTakenBackByResume) {
  auto claimed = running();
  ASSERT_TRUE(jobs_->pause("default", claimed.id).ok());
  EXPECT_EQ(finish(claimed, "w1", "crash").state, "PAUSED");
  ASSERT_TRUE(jobs_->resume("default", claimed.id).ok());
  claimed = claim("w1").job;
  ASSERT_TRUE(jobs_->pause("default", claimed.id).ok());
  ASSERT_TRUE(jobs_->resume("default", claimed.id).ok());
  EXPECT_EQ(beat(claimed, "w1", 1).verdict, Verdict::kOk);
  EXPECT_EQ(finish(claimed, "w1", "paused").state, "READY");  // nobody wants it paused any more
}

TEST_F(TransitionTest, HeldJobStopsAfterValidation) {
  NewJob held;
  held.hold = true;
  const auto id = submit("default", held);
  const auto claimed = claim("w1").job;
  EXPECT_EQ(claimed.want, "hold");
  EXPECT_EQ(finish(claimed, "w1", "paused").state, "PAUSED");
  EXPECT_EQ(job(id).pause_reason, "AWAITING_START");
}

TEST_F(TransitionTest, IllegalFinishesChangeNothing) {
  const auto claimed = running();
  const std::string before = dump_all(server());
  JobRepository::Finish bad{"w1", claimed.id, claimed.epoch, "cancelled"};
  EXPECT_EQ(jobs_->finish(bad).status().code(), base::Code::kInvalidArgument);
  bad.outcome = "exploded";
  EXPECT_EQ(jobs_->finish(bad).status().code(), base::Code::kInvalidArgument);
  bad.outcome = "success";  // without a result
  EXPECT_EQ(jobs_->finish(bad).status().code(), base::Code::kInvalidArgument);
  bad.outcome = "crash";
  bad.epoch += 1;
  EXPECT_TRUE(jobs_->finish(bad)->lost);
  bad.epoch -= 1;
  bad.worker = "w2";
  EXPECT_TRUE(jobs_->finish(bad)->lost);
  bad.id = "ftjob-nobody";
  EXPECT_TRUE(jobs_->finish(bad)->lost);
  EXPECT_EQ(dump_all(server()), before);
}

TEST_F(TransitionTest, TerminalStatesRefuseEverything) {
  const auto claimed = running();
  finish(claimed, "w1", "success");
  EXPECT_EQ(jobs_->pause("default", claimed.id).status().reason(), "JOB_STATE_CONFLICT");
  EXPECT_EQ(jobs_->resume("default", claimed.id).status().reason(), "JOB_STATE_CONFLICT");
  EXPECT_EQ(beat(claimed, "w1", 9).verdict, Verdict::kLost);
  EXPECT_TRUE(finish(claimed, "w1", "crash").lost);
}

TEST_F(TransitionTest, OtherTenantsSeeNothing) {
  const auto id = submit("alice");
  for (const auto& status : {jobs_->get("bob", id).status(), jobs_->cancel("bob", id, "").status(),
                             jobs_->pause("bob", id).status(), jobs_->resume("bob", id).status(),
                             jobs_->get("bob", "ftjob-none").status()}) {
    EXPECT_EQ(status.reason(), "RESOURCE_NOT_FOUND");
  }
}

}  // namespace
}  // namespace dex::store
