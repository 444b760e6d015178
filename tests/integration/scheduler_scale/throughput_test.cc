// How many attempts a second begin and end: a claim and a finish each, with and without waiting for
// the disk, on one shard and on two. The short form shows that it works; the long form on a machine
// with two cores that are free holds the promised numbers.
#include <atomic>
#include <thread>

#include "tests/integration/scheduler_scale/full_store.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"

namespace dex::scale {
namespace {

// A shard has many workers, and Redis syncs its log once for all calls that wait together: with two
// of them this would measure the latency of the disk.
constexpr int kWorkersAShard = 8;

class ThroughputTest : public testing::Test {
 protected:
  static std::unique_ptr<support::RedisServer> queue() {
    auto server = large_server();
    const int jobs = support::long_form() ? 30'000 : 8'000;  // more than are run
    fill(*server, jobs, 64, "many", [] { return int64_t{1'764'000'000'000}; });
    return server;
  }

  // Claims and finishes jobs until told to stop; adds to `done`.
  static void run_jobs(support::RedisServer& server, int number, const std::atomic<bool>& stop,
                       std::atomic<int64_t>& done) {
    store::Store::Options options;
    options.redis.address = server.address();
    options.redis.connections = 1;
    store::Store store(options);
    store::JobRepository jobs(store);
    store::WorkerRepository workers(store);
    store::WorkerRecord record;
    record.id = "w" + std::to_string(number);
    record.pools = {pool_name(0)};
    record.slots = 1;
    EXPECT_TRUE(workers.enlist(record).ok());
    for (int n = 0; !stop; ++n) {
      store::JobRepository::ClaimRequest request{record.id, "c" + std::to_string(n), 0, {}};
      for (int k = 0; k < 8; ++k) request.pools.push_back(pool_name((n + k) % kPools));
      const auto claim = jobs.claim(request);
      ASSERT_TRUE(claim.ok()) << claim.status().to_string();
      ASSERT_FALSE(claim->job.id.empty()) << "the queue ran dry";
      store::JobRepository::Finish finish;
      finish.worker = record.id;
      finish.id = claim->job.id;
      finish.epoch = claim->job.epoch;
      finish.outcome = "success";
      finish.result_uri = "uri";
      ASSERT_TRUE(jobs.finish(finish).ok());
      ++done;
    }
  }

  // Attempts a second over all shards.
  static double rate(const std::vector<support::RedisServer*>& shards, int64_t time_ms) {
    std::atomic<bool> stop = false;
    std::atomic<int64_t> done = 0;
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      int number = 0;
      for (support::RedisServer* shard : shards) {
        for (int i = 0; i < kWorkersAShard; ++i) {
          threads.emplace_back([&, shard, n = ++number] { run_jobs(*shard, n, stop, done); });
        }
      }
      support::eventually([] { return false; }, time_ms);  // lets them work
      stop = true;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return static_cast<double>(done) / took.count();
  }
};

TEST_F(ThroughputTest, AttemptsASecond) {
  const int64_t time_ms = support::long_form() ? 2000 : 500;  // four times; the queue must last
  const auto first = queue(), second = queue();
  const double always = rate({first.get()}, time_ms);
  const double two_shards = rate({first.get(), second.get()}, time_ms);
  for (const auto* server : {&first, &second}) {
    (*server)->call({"CONFIG", "SET", "appendfsync", "everysec"});
  }
  const double everysec = rate({first.get()}, time_ms);
  const double two_everysec = rate({first.get(), second.get()}, time_ms);
  support::figure("queue", "workers_a_shard", kWorkersAShard);
  support::figure("queue", "attempts_per_second_always", always);
  support::figure("queue", "attempts_per_second_everysec", everysec);
  support::figure("queue", "attempts_per_second_always_two_shards", two_shards);
  support::figure("queue", "attempts_per_second_everysec_two_shards", two_everysec);
  RecordProperty("always", std::to_string(always));
  RecordProperty("everysec", std::to_string(everysec));
  EXPECT_GE(always, support::long_form() ? 1000 : 5);  // a busy disk may take 50 ms a sync
  EXPECT_GE(everysec, support::long_form() ? 2000 : 10);
  // Each shard has a process of its own; with two cores for both and their clients that is not
  // twice as much.
  if (support::long_form()) {
    EXPECT_GT(two_shards, always);
    EXPECT_GT(two_everysec, everysec);
  }
}

}  // namespace
}  // namespace dex::scale
