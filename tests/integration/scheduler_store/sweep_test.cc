// What time does: leases, settle windows, deadlines, delays (jobs.md §4).
#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/invariants.h"

namespace dex::store {
namespace {

using ClaimAnswer = JobRepository::ClaimAnswer;

class SweepTest : public StoreTest {
 protected:
  SweepTest() { enlist("w1"); }
  Store::Swept sweep() {
    const auto swept = store_->sweep();
    EXPECT_TRUE(swept.ok()) << swept.status().to_string();
    return *swept;
  }
  // Sweeps every 5 s, as a scheduler that is up does.
  Store::Swept pass(int64_t ms) {
    Store::Swept sum;
    for (int64_t gone = 0; gone < ms; gone += 5000) {
      clock_.advance_ms(std::min<int64_t>(5000, ms - gone));
      const auto swept = sweep();
      sum.leases += swept.leases;
      sum.deadlines += swept.deadlines;
      sum.workers_lost += swept.workers_lost;
    }
    return sum;
  }
};

TEST_F(SweepTest, LostWorkersJobComesBackWithItsCheckpoint) {
  const auto id = submit();
  const auto claimed = claim("w1").job;
  pass(40000);  // past the settle window of the first sweep
  ASSERT_EQ(state(id), "READY");
  const auto again = claim("w1").job;
  JobRepository::Beat beat{"w1", id, again.epoch, 1, "TRAINING", "", {"ck", "sha", 40}, {}};
  ASSERT_TRUE(jobs_->beat(beat).ok());
  EXPECT_EQ(pass(25000).leases, 0);
  EXPECT_EQ(pass(10000).leases, 1);
  EXPECT_EQ(state(id), "DELAYED");  // the second death waits
  EXPECT_EQ(job(id).crashes, 2);
  EXPECT_EQ(job(id).checkpoint.uri, "ck");
  EXPECT_EQ(job(id).why_code, "worker_lost");
  pass(30000);
  enlist("w1");  // silent for so long, it was given up
  claim("w1");
  pass(40000);
  EXPECT_EQ(state(id), "FAILED");
  EXPECT_EQ(job(id).why_code, "poison_job");
}

TEST_F(SweepTest, NobodyIsReapedAfterAGapOfTheScheduler) {
  const auto id = submit();
  pass(40000);
  const auto claimed = claim("w1").job;
  clock_.advance_ms(120000);  // no scheduler for two minutes
  EXPECT_TRUE(sweep().settling);
  EXPECT_EQ(state(id), "RUNNING");
  EXPECT_EQ(beat(claimed, "w1", 1).verdict, JobRepository::Verdict::kOk);
  pass(29000);
  EXPECT_EQ(state(id), "RUNNING");
}

TEST_F(SweepTest, NobodyIsReapedAfterARestartOfRedis) {
  pass(40000);
  const auto id = submit();
  claim("w1");
  pass(29000);
  server().call({"HSET", "dex:{s0}:cfg", "run_id", "another life"});
  clock_.advance_ms(2000);
  EXPECT_TRUE(make_store()->sweep()->settling);  // a new connection says hello
  EXPECT_EQ(state(id), "RUNNING");
}

TEST_F(SweepTest, ClockStepBackPullsLeasesBack) {
  const auto id = submit();
  pass(40000);
  claim("w1");
  clock_.set_now_ms(clock_.now_ms() - 3600000);
  EXPECT_EQ(sweep().pulled_back, 1);
  pass(65000);  // one settle window, then one lease
  EXPECT_EQ(state(id), "READY");
}

TEST_F(SweepTest, PauseSurvivesALostLease) {
  const auto id = submit();
  pass(40000);
  claim("w1");
  ASSERT_TRUE(jobs_->pause("default", id).ok());
  pass(40000);
  EXPECT_EQ(state(id), "PAUSED");
}

TEST_F(SweepTest, CancelledJobOfALostWorkerIsCancelled) {
  const auto id = submit();
  pass(40000);
  claim("w1");
  ASSERT_TRUE(jobs_->cancel("default", id, "stop").ok());
  pass(40000);
  EXPECT_EQ(state(id), "CANCELLED");
  EXPECT_EQ(zcard("trun:default"), 0);
}

TEST_F(SweepTest, DeadlineEndsWaitingAndRunningJobs) {
  NewJob soon;
  soon.deadline_ms = 10000;
  const auto running = submit("default", soon);
  const auto waiting = submit("default", soon);
  const auto claimed = claim("w1").job;
  EXPECT_EQ(claimed.id, running);
  EXPECT_EQ(pass(10000).deadlines, 2);
  EXPECT_EQ(state(waiting), "CANCELLED");
  EXPECT_EQ(log_types(waiting).back(), "job_expired");
  EXPECT_EQ(state(running), "CANCELLING");
  finish(claimed, "w1", "cancelled");
  EXPECT_EQ(job(running).why_code, "deadline_exceeded");
}

TEST_F(SweepTest, DelayedJobsBecomeReady) {
  NewJob later;
  later.delay_ms = 7000;
  const auto id = submit("default", later);
  pass(5000);
  EXPECT_EQ(state(id), "DELAYED");
  pass(5000);
  EXPECT_EQ(state(id), "READY");
  EXPECT_EQ(claim("w1").job.id, id);
}

TEST_F(SweepTest, MoreThanOneLimitOfDueJobsIsSweptAtOnce) {
  ASSERT_TRUE(store_->set_tenant("default", 1, 1000, 1000, 0).ok());
  NewJob later;
  later.delay_ms = 1000;
  for (int i = 0; i < 120; ++i) submit("default", later);
  clock_.advance_ms(1000);
  EXPECT_EQ(sweep().delayed, 120);
  EXPECT_EQ(zcard("ready:cpu"), 120);
}

TEST_F(SweepTest, SilentWorkerIsLostButNotWhileSettling) {
  const auto before = *workers_->routes_revision();
  pass(25000);
  ASSERT_TRUE(workers_->alive("w1", "engines").ok());
  EXPECT_EQ(pass(60000).workers_lost, 0);
  EXPECT_EQ(pass(5000).workers_lost, 1);
  EXPECT_TRUE(workers_->alive("w1", "engines")->unknown);
  EXPECT_GT(*workers_->routes_revision(), before);
}

TEST_F(SweepTest, ReconcileRepairsWhatAByHandChangeBroke) {
  const auto id = submit();
  server().call({"ZREM", "dex:{s0}:ready:cpu", id});
  server().call({"ZADD", "dex:{s0}:paused", "1", "ftjob-ghost"});
  EXPECT_EQ(*store_->reconcile(), 2);
  EXPECT_TRUE(broken_invariants(server(), clock_.now_ms()).empty());
}

}  // namespace
}  // namespace dex::store
