// The sweeper by itself, on a Redis in which some things take long.
#include "scheduler/server/sweeper.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <string>
#include <string_view>

#include "scheduler/store/job_repository.h"
#include "services/monitor/registry.h"
#include "tests/support/eventually.h"
#include "tests/support/redis_server.h"

namespace dex::server {
namespace {

// One job of each of four tenants. Of them and of the pool sets with members: ready, inflight; of
// each tenant rq, twait, tjobs; then the jobs themselves.
constexpr int kLooks = 2 + 4 * 3 + 1;
constexpr int kLook_ms = 200;

store::Store::Options slow_store(const support::RedisServer& redis, std::atomic<int>& looks) {
  store::Store::Options options;
  options.redis.address = redis.address();
  options.times.settle_ms = 1000;
  options.times.gap_ms = kLooks * kLook_ms / 2;
  options.redis.observe = [&looks](std::string_view name, double, std::string_view) {
    if (name != "reconcile") return;
    ::poll(nullptr, 0, kLook_ms);  // as over a great many jobs
    ++looks;
  };
  return options;
}

void submit_one(store::Store& store, const std::string& tenant) {
  store::JobRepository::Submission submission;
  submission.request = {"request", "digest"};
  submission.jobs.resize(1);
  submission.jobs[0].id = "ftjob-" + tenant;
  const auto submitted = store::JobRepository(store).submit(tenant, submission);
  ASSERT_TRUE(submitted.ok()) << submitted.status().to_string();
}

TEST(SweeperTest, AReconcileThatOutlastsTheGapOpensNoSettleWindow) {
  support::RedisServer redis;
  std::atomic<int> looks = 0;
  store::Store store(slow_store(redis, looks));
  for (const std::string tenant : {"a", "b", "c", "d"}) submit_one(store, tenant);
  const auto cfg = [&redis](const char* field) {
    return redis.call({"HGET", "dex:{s0}:cfg", field}).as_int();
  };
  monitor::Registry registry("test", "0", "0");
  Metrics metrics(registry);
  base::SystemClock clock;
  Sweeper::Options options;
  options.sweep_ms = 50;
  const Sweeper sweeper(store, metrics, clock, options);

  ASSERT_TRUE(support::eventually([&] { return looks >= 1; }));
  const int64_t settle_until = cfg("settle_until");  // of the start: nobody had swept before
  ASSERT_TRUE(support::eventually([&] { return looks >= kLooks; }));
  const int64_t swept_ms = cfg("swept_ms");
  ASSERT_TRUE(support::eventually([&] { return cfg("swept_ms") > swept_ms; }));
  EXPECT_EQ(cfg("settle_until"), settle_until);
  EXPECT_TRUE(sweeper.health().ok());
}

}  // namespace
}  // namespace dex::server
