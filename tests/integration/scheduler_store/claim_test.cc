// Idempotency, replays and fences: what happens when calls are lost, repeated or late.
#include <thread>

#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/invariants.h"

namespace dex::store {
namespace {

using ClaimAnswer = JobRepository::ClaimAnswer;
using Verdict = JobRepository::Verdict;

class ClaimTest : public StoreTest {
 protected:
  ClaimTest() { enlist("w1"); }
};

TEST_F(ClaimTest, SixtyFourThreadsWithOneRequestIdMakeOneJob) {
  std::vector<std::jthread> threads;
  std::vector<std::string> ids(64);
  for (size_t i = 0; i < ids.size(); ++i) {
    threads.emplace_back([&, i] {
      JobRepository::Submission submission;
      submission.request.id = "same";
      submission.request.digest = "body";
      submission.jobs.resize(1);
      submission.jobs[0].id = "ftjob-t" + std::to_string(i);
      const auto submitted = jobs_->submit("default", submission);
      if (submitted.ok()) ids[i] = submitted->ids.at(0);
    });
  }
  threads.clear();
  EXPECT_EQ(zcard("tjobs:default"), 1);
  for (const std::string& id : ids) EXPECT_EQ(id, ids[0]);
  EXPECT_FALSE(ids[0].empty());
}

TEST_F(ClaimTest, SameRequestIdWithAnotherBodyConflicts) {
  JobRepository::Submission submission;
  submission.request.id = "r";
  submission.request.digest = "a";
  submission.jobs.resize(1);
  submission.jobs[0].id = "ftjob-a";
  ASSERT_FALSE(jobs_->submit("default", submission)->replayed);
  ASSERT_TRUE(jobs_->submit("default", submission)->replayed);
  submission.request.digest = "b";
  EXPECT_EQ(jobs_->submit("default", submission).status().reason(), "IDEMPOTENCY_CONFLICT");
  submission.jobs[0].id = "ftjob-b";
  EXPECT_TRUE(jobs_->submit("other", submission).ok());  // request ids belong to a tenant
}

TEST_F(ClaimTest, ReplayGivesTheSameJobWithCheckpointAndWant) {
  NewJob held;
  held.hold = true;
  submit("default", held);
  const auto first = claim("w1", "c1");
  ASSERT_EQ(first.answer, ClaimAnswer::kJob);
  JobRepository::Beat beat{"w1",       first.job.id, first.job.epoch,     1,
                           "TRAINING", "",           {"ck-1", "sha", 12}, {}};
  ASSERT_TRUE(jobs_->beat(beat).ok());
  const std::string before = dump_all(server());
  const auto again = claim("w1", "c1");
  ASSERT_EQ(again.answer, ClaimAnswer::kJob);
  EXPECT_FALSE(first.replayed);
  EXPECT_TRUE(again.replayed);
  EXPECT_EQ(again.job.id, first.job.id);
  EXPECT_EQ(again.job.epoch, first.job.epoch);
  EXPECT_EQ(again.job.want, "hold");
  EXPECT_EQ(again.job.checkpoint.uri, "ck-1");
  EXPECT_EQ(again.job.checkpoint.step, 12);
  EXPECT_EQ(dump_all(server()), before);
  finish(first.job, "w1", "release");
  EXPECT_EQ(claim("w1", "c1").answer, ClaimAnswer::kStale);
}

TEST_F(ClaimTest, NoneWritesNothing) {
  const std::string before = dump_all(server());
  EXPECT_EQ(claim("w1").answer, ClaimAnswer::kNone);
  EXPECT_EQ(dump_all(server()), before);
}

TEST_F(ClaimTest, UnknownAndDrainingWorkersGetNothing) {
  submit();
  EXPECT_EQ(claim("stranger").answer, ClaimAnswer::kUnknown);
  ASSERT_TRUE(workers_->drain("w1").ok());
  EXPECT_EQ(claim("w1").answer, ClaimAnswer::kDrain);
  ASSERT_TRUE(workers_->gone("w1").ok());
  EXPECT_EQ(claim("w1").answer, ClaimAnswer::kUnknown);
  enlist("w1");
  EXPECT_EQ(claim("w1").answer, ClaimAnswer::kJob);
}

NewJob needs(const std::string& base_model) {
  NewJob job;
  job.base_model = base_model;
  return job;
}

TEST_F(ClaimTest, AWorkerIsGivenNoJobOfAModelThatItLacks) {
  enlist("has-a", {"a", "c"});
  enlist("has-b", {"b"});
  const auto first = submit("default", needs("b"));
  const auto second = submit("default", needs("a"));
  EXPECT_EQ(claim("has-a").job.id, second) << "past the head of the queue";
  const std::string before = dump_all(server());
  EXPECT_EQ(claim("has-a", "", 1).answer, ClaimAnswer::kNone);
  EXPECT_EQ(dump_all(server()), before);
  EXPECT_EQ(claim("has-b").job.id, first);
}

// What a READY job says of the workers of its pool, alone and in a list.
TEST_F(ClaimTest, AJobKnowsWhetherAnyWorkerHasItsModel) {
  const auto lacks = [&](const std::string& id) {
    const auto listed = jobs_->list("default", {}, 10);
    EXPECT_TRUE(listed.ok());
    for (const JobRecord& each : *listed) {
      if (each.id == id) EXPECT_EQ(each.lacks_model, job(id).lacks_model);
    }
    return job(id).lacks_model;
  };
  const auto b = submit("default", needs("b"));
  EXPECT_FALSE(lacks(b)) << "w1 did not say what it has";
  ASSERT_TRUE(workers_->gone("w1").ok());
  EXPECT_FALSE(lacks(b)) << "no worker is there: it waits for any";
  enlist("has-a", {"a"});
  EXPECT_TRUE(lacks(b));
  EXPECT_FALSE(lacks(submit("default", needs("a"))));
  EXPECT_FALSE(lacks(submit())) << "it runs on any model's worker";
  enlist("has-b", {"a", "b"});
  EXPECT_FALSE(lacks(b));
  ASSERT_TRUE(workers_->drain("has-b").ok());
  EXPECT_TRUE(lacks(b)) << "a worker that takes no new jobs";
  WorkerRecord elsewhere;
  elsewhere.id = "gpu-b";
  elsewhere.pools = {"gpu"};
  elsewhere.slots = 1;
  elsewhere.models = {"b"};
  ASSERT_TRUE(workers_->enlist(elsewhere).ok());
  EXPECT_TRUE(lacks(b)) << "a worker of another pool";
  enlist("has-b", {"b"});
  claim("has-b");
  EXPECT_EQ(state(b), "RUNNING");
  ASSERT_TRUE(workers_->gone("has-b").ok());
  EXPECT_FALSE(lacks(b)) << "it does not wait";
}

// A job that says no model and a worker that says none are of before.
TEST_F(ClaimTest, WhoSaysNothingOfModelsTakesAndGetsEverything) {
  ASSERT_TRUE(store_->set_tenant("default", 1, 1000, 1000, 0).ok());
  enlist("has-a", {"a"});
  const auto any = submit();
  const auto other = submit("default", needs("b"));
  EXPECT_EQ(claim("has-a").job.id, any);
  EXPECT_EQ(claim("has-a", "", 1).answer, ClaimAnswer::kNone);
  EXPECT_EQ(claim("w1").job.id, other);
}

TEST_F(ClaimTest, TenantsWhoseJobsAreForOtherWorkersHideNobody) {
  enlist("has-a", {"a"});
  for (int i = 0; i < 20; ++i) submit("tenant-" + std::to_string(i), needs("b"));
  const auto last = submit("zz", needs("a"));
  EXPECT_EQ(claim("has-a").job.id, last);
  EXPECT_EQ(claim("has-a", "", 1).answer, ClaimAnswer::kNone);
  EXPECT_EQ(claim("w1").job.tenant, "tenant-0") << "their turn is kept";
}

TEST_F(ClaimTest, ZombieIsLostAndCannotPublish) {
  NewJob with_adapter;
  with_adapter.adapter = "ft:b:default::z";
  const auto id = submit("default", with_adapter);
  enlist("w2");
  const auto zombie = claim("w1").job;
  ASSERT_TRUE(store_->sweep().ok());
  clock_.advance_ms(15000);
  ASSERT_TRUE(store_->sweep().ok());
  clock_.advance_ms(15001);
  ASSERT_EQ(store_->sweep()->leases, 1);
  const auto owner = claim("w2").job;
  ASSERT_EQ(owner.id, id);
  EXPECT_GT(owner.epoch, zombie.epoch);
  EXPECT_EQ(beat(zombie, "w1", 5).verdict, Verdict::kLost);
  EXPECT_TRUE(finish(zombie, "w1", "success").lost);
  EXPECT_EQ(finish(owner, "w2", "success").state, "SUCCEEDED");
  EXPECT_TRUE(finish(zombie, "w1", "success").lost);
  EXPECT_EQ(job(id).attempt, 2);
}

TEST_F(ClaimTest, EpochGrowsWhenTheClockStandsOrStepsBack) {
  submit();
  int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    const auto claimed = claim("w1").job;
    EXPECT_GT(claimed.epoch, last);
    last = claimed.epoch;
    finish(claimed, "w1", "release");
    if (i == 2) clock_.set_now_ms(clock_.now_ms() - 60000);
  }
}

TEST_F(ClaimTest, BeatWorksOnAnExpiredLeaseThatNobodyReaped) {
  const auto id = submit();
  const auto claimed = claim("w1").job;
  clock_.advance_ms(600000);
  EXPECT_EQ(beat(claimed, "w1", 1).verdict, Verdict::kOk);
  EXPECT_EQ(state(id), "RUNNING");
}

TEST_F(ClaimTest, BeatNeverMovesAnExpiryBack) {
  submit();
  const auto claimed = claim("w1").job;
  const int64_t first = beat(claimed, "w1", 1).expires_ms;
  clock_.set_now_ms(clock_.now_ms() - 10000);
  EXPECT_EQ(beat(claimed, "w1", 2).expires_ms, first);
}

TEST_F(ClaimTest, HigherPriorityOfATenantGoesFirst) {
  const auto low = submit();
  NewJob urgent;
  urgent.priority = 6;
  const auto high = submit("default", urgent);
  EXPECT_EQ(claim("w1").job.id, high);
  EXPECT_EQ(claim("w1", "", 1).job.id, low);
}

TEST_F(ClaimTest, LongLogIsReadInPages) {
  submit();
  const auto claimed = claim("w1").job;
  JobRepository::Beat beat{"w1", claimed.id, claimed.epoch, 1, "TRAINING", "", {}, {}};
  beat.events.assign(128, {0, "INFO", "metrics", "m", "d"});
  ASSERT_TRUE(jobs_->beat(beat).ok());
  beat.events.assign(129, {0, "INFO", "metrics", "m", "d"});
  beat.sequence = 2;
  EXPECT_EQ(jobs_->beat(beat).status().code(), base::Code::kInvalidArgument);
  int64_t after = 0;
  int seen = 0;
  while (true) {
    const auto page = jobs_->log(claimed.id, after, 50);
    ASSERT_TRUE(page.ok());
    if (page->empty()) break;
    for (const LogEntry& entry : *page) {
      EXPECT_EQ(entry.sequence, after + 1);
      after = entry.sequence;
      ++seen;
    }
  }
  EXPECT_EQ(seen, 130);  // queued, start, 128 points
  const auto news = jobs_->logs({{claimed.id, 128}, {"ftjob-none", 0}}, 100);
  ASSERT_EQ(news->size(), 1U);
  EXPECT_EQ(news->at(0).first, claimed.id);
  EXPECT_EQ(news->at(0).second.size(), 2U);
}

}  // namespace
}  // namespace dex::store
