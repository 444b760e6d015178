// Redis is killed, restarted, replaced, flushed: what was acknowledged stays (jobs.md §13, P1).
#include <atomic>
#include <thread>

#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/invariants.h"

namespace dex::store {
namespace {

using ClaimAnswer = JobRepository::ClaimAnswer;

class DurabilityTest : public StoreTest {};

TEST_F(DurabilityTest, AcknowledgedJobsSurviveKillsBetweenAndDuringCalls) {
  ASSERT_TRUE(store_->set_tenant("default", 1, 100000, 1000, 0).ok());
  std::vector<std::string> acknowledged;
  std::atomic<bool> stop = false;
  std::jthread submitter([&] {
    for (int i = 0; !stop; ++i) {
      JobRepository::Submission submission;
      submission.request.id = submission.request.digest = "r" + std::to_string(i);
      submission.jobs.resize(1);
      submission.jobs[0].id = "ftjob-k" + std::to_string(i);
      if (jobs_->submit("default", submission).ok()) acknowledged.push_back(submission.jobs[0].id);
    }
  });
  for (int kill = 0; kill < 10; ++kill) {
    const int64_t want = zcard("tjobs:default") + 20;
    EXPECT_TRUE(support::eventually([&] { return zcard("tjobs:default") >= want; }));
    server().restart();
  }
  stop = true;
  submitter.join();
  EXPECT_GE(acknowledged.size(), 200U);
  for (const std::string& id : acknowledged) EXPECT_EQ(state(id), "READY");
}

TEST_F(DurabilityTest, CallsWaitOutARestart) {
  const auto id = submit();
  server().kill();
  std::jthread later([&] { EXPECT_TRUE(jobs_->get("default", id).ok()); });
  server().start();
  later.join();
}

TEST_F(DurabilityTest, MissingRedisIsUnavailableAfterPatience) {
  Store::Options options;
  options.redis.address.unix_path = "/nonexistent/redis.sock";
  options.redis.patience = std::chrono::milliseconds(100);
  Store store(options);
  const auto status = JobRepository(store).get("default", "x").status();
  EXPECT_EQ(status.code(), base::Code::kUnavailable);
  EXPECT_EQ(status.reason(), "STORE_UNAVAILABLE");
}

TEST_F(DurabilityTest, FlushedScriptsAreLoadedAgain) {
  submit();
  server().call({"SCRIPT", "FLUSH"});
  const auto id = submit();
  EXPECT_EQ(state(id), "READY");
}

TEST_F(DurabilityTest, LaxSettingsAreSeen) {
  EXPECT_EQ(*store_->durability(), "");
  server().call({"CONFIG", "SET", "appendfsync", "everysec"});
  server().call({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
  const std::string wrong = *store_->durability();
  EXPECT_NE(wrong.find("appendfsync is 'everysec'"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("maxmemory-policy is 'allkeys-lru'"), std::string::npos) << wrong;
  server().call({"CONFIG", "SET", "appendfsync", "always"});
  server().call({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
}

TEST_F(DurabilityTest, FullRedisTakesNoWorkButCanEmptyItself) {
  enlist("w1");
  const auto first = submit();
  const auto second = submit();
  const auto claimed = claim("w1").job;
  server().call({"CONFIG", "SET", "maxmemory", "1mb"});
  Store::Options options;
  options.redis.address = server().address();
  options.redis.patience = std::chrono::milliseconds(100);
  options.clock_ms = [this] { return clock_.now_ms(); };
  Store hasty(options);
  JobRepository jobs(hasty);
  JobRepository::Submission submission;
  submission.request.id = submission.request.digest = "full";
  submission.jobs.resize(1);
  submission.jobs[0].id = "ftjob-full";
  EXPECT_EQ(jobs.submit("default", submission).status().code(), base::Code::kUnavailable);
  EXPECT_TRUE(jobs.beat({"w1", first, claimed.epoch, 1, "TRAINING", "", {}, {}}).ok());
  EXPECT_EQ(finish(claimed, "w1", "success").state, "SUCCEEDED");
  EXPECT_TRUE(jobs.cancel("default", second, "").ok());
  server().call({"CONFIG", "SET", "maxmemory", "256mb"});
}

TEST_F(DurabilityTest, NewerSchemaIsLeftAlone) {
  server().call({"HSET", "dex:{s0}:cfg", "schema", "99"});
  const auto store = make_store();
  EXPECT_EQ(JobRepository(*store).get("default", "x").status().reason(), "STORE_TOO_NEW");
  server().call({"HSET", "dex:{s0}:cfg", "schema", "1"});
}

TEST_F(DurabilityTest, ForeignClockIsRefused) {
  server().call({"HDEL", "dex:{s0}:cfg", "testclock"});
  EXPECT_EQ(jobs_->list("default", {}, 10).status().code(), base::Code::kInternal);
  server().call({"HSET", "dex:{s0}:cfg", "testclock", "1"});
}

}  // namespace
}  // namespace dex::store
