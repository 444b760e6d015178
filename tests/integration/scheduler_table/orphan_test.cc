// Sets that name a job which is gone or in another state: nothing fails or loops over them, nothing
// happens to the job, and what is found is removed (jobs.md §3, reconcile: `state` is the truth).
#include <string>
#include <vector>

#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/invariants.h"

namespace dex::store {
namespace {

class OrphanTest : public StoreTest {
 protected:
  OrphanTest() { enlist("w1"); }
  void put_in(const std::string& set, const std::string& id, int64_t score = 1) {
    server().call({"ZADD", store_->key(set), std::to_string(score), id});
  }
  // Sweeps as a scheduler does, past the settle window; answers what it saw in all.
  Store::Swept pass() {
    Store::Swept sum;
    for (int i = 0; i < 9; ++i) {
      const auto swept = store_->sweep();
      EXPECT_TRUE(swept.ok()) << swept.status().to_string();
      if (!swept.ok()) return sum;
      sum.orphans += swept->orphans;
      sum.news += swept->news;
      clock_.advance_ms(5000);
    }
    return sum;
  }
  bool sound() { return support::broken_invariants(server(), clock_.now_ms()).empty(); }
};

class GhostTest : public OrphanTest, public testing::WithParamInterface<const char*> {};

TEST_P(GhostTest, AMissingJobStopsNeitherSweepsNorClaims) {
  const std::string set = GetParam();
  const auto id = submit();
  for (int i = 0; i < 60; ++i) put_in(set, "ftjob-ghost-" + std::to_string(i));
  pass();
  const auto claimed = claim("w1");
  // A ghost that counts as running may hold its tenant back until the next reconcile.
  if (set != "trun:default") EXPECT_EQ(claimed.job.id, id);
  ASSERT_TRUE(store_->reconcile().ok());
  EXPECT_EQ(state(id), set == "trun:default" ? "READY" : "RUNNING");
  EXPECT_TRUE(sound());
  if (set == "trun:default") EXPECT_EQ(claim("w1").job.id, id);
}

INSTANTIATE_TEST_SUITE_P(Sets, GhostTest,
                         testing::Values("delayed", "lease", "deadline", "paused", "done", "dead",
                                         "ready:cpu", "rq:cpu:default", "inflight:cpu",
                                         "twait:default", "trun:default", "tjobs:default"));

TEST_F(OrphanTest, ASweepRemovesAndCountsThem) {
  for (const char* set : {"delayed", "lease", "deadline"}) {
    for (int i = 0; i < 60; ++i) put_in(set, "ftjob-ghost-" + std::to_string(i));
  }
  put_in("lease", "ftjob-ghost-late", clock_.now_ms() + 86'400'000);
  const auto swept = pass();
  EXPECT_EQ(swept.orphans, 181);
  EXPECT_EQ(swept.news, 0);
  for (const char* set : {"delayed", "lease", "deadline"}) EXPECT_EQ(zcard(set), 0) << set;
  // None of them has become a job by being touched.
  EXPECT_TRUE(server().call({"KEYS", "*ghost*"}).elements.empty());
  EXPECT_EQ(*store_->reconcile(), 0);
}

TEST_F(OrphanTest, AMemberInTheWrongSetChangesNoJob) {
  NewJob job;
  job.adapter = "ft:base:default::1";
  const auto done = submit("default", job);
  finish(claim("w1").job, "w1", "success");
  const auto waits = submit();
  for (const char* set : {"delayed", "lease", "deadline"}) {
    put_in(set, done);
    put_in(set, waits);
  }
  EXPECT_EQ(pass().orphans, 6);
  EXPECT_EQ(state(done), "SUCCEEDED");
  EXPECT_EQ(state(waits), "READY");
  EXPECT_EQ(this->job(waits).crashes, 0);
  EXPECT_TRUE(sound());
}

TEST_F(OrphanTest, ATooEarlyScoreIsPutRightAndTheJobWaits) {
  NewJob later;
  later.delay_ms = 600'000;
  later.deadline_ms = 900'000;
  const auto id = submit("default", later);
  put_in("delayed", id);
  put_in("deadline", id);
  EXPECT_EQ(pass().orphans, 2);
  EXPECT_EQ(state(id), "DELAYED");
  EXPECT_TRUE(sound());
}

TEST_F(OrphanTest, ARunningJobInTheQueueIsNotClaimedTwice) {
  const auto id = submit();
  const auto claimed = claim("w1").job;
  put_in("rq:cpu:default", id);
  put_in("ready:cpu", id);
  put_in("ring:cpu", "default", 0);
  EXPECT_EQ(claim("w1").answer, JobRepository::ClaimAnswer::kNone);
  EXPECT_EQ(job(id).epoch, claimed.epoch);
  EXPECT_TRUE(sound());
  const auto next = submit();
  put_in("rq:cpu:default", id);
  EXPECT_EQ(claim("w1").job.id, next);
}

TEST_F(OrphanTest, AGhostHoldsNoFile) {
  FileRecord file;
  file.id = "file-1";
  file.state = "READY";
  file.sha256 = "sha";
  ASSERT_TRUE(files_->put("default", {"put", "x"}, file, 10).ok());
  NewJob job;
  job.files = {"file-1"};
  const auto id = submit("default", job);
  put_in("fileuse:file-1", "ftjob-ghost");
  EXPECT_EQ(*store_->reconcile(), 1);
  EXPECT_EQ(files_->get("default", "file-1")->users, std::vector<std::string>{id});
}

TEST_F(OrphanTest, AGhostHoldsNoAdapter) {
  NewJob maker;
  maker.adapter = "ft:base:default::1";
  submit("default", maker);
  finish(claim("w1").job, "w1", "success");
  put_in("adapteruse:" + maker.adapter, "ftjob-ghost");
  EXPECT_EQ(adapters_->remove("default", maker.adapter).status().reason(), "ADAPTER_IN_USE");
  EXPECT_EQ(*store_->reconcile(), 1);
  EXPECT_TRUE(adapters_->remove("default", maker.adapter).ok());
}

TEST_F(OrphanTest, AWorkerWithoutARecordGetsNone) {
  put_in("workers", "ghost");
  pass();
  pass();
  EXPECT_EQ(zcard("workers"), 0);
  EXPECT_EQ(server().call({"EXISTS", store_->key("worker:ghost")}).as_int(), 0);
}

TEST_F(OrphanTest, AListSkipsRecordsThatAreGone) {
  const auto id = submit();
  put_in("tjobs:default", "ftjob-ghost", clock_.now_ms() + 1);
  const auto page = *jobs_->list("default", {}, 10);
  ASSERT_EQ(page.size(), 1U);
  EXPECT_EQ(page[0].id, id);
  EXPECT_EQ(*store_->reconcile(), 1);
}

}  // namespace
}  // namespace dex::store
