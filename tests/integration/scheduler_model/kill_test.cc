// kill -9 of Redis at random moments, between calls and during them, while four workers submit,
// claim, beat and finish: what was acknowledged is there, and nothing else (P1).
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "scheduler/store/job_repository.h"
#include "scheduler/store/worker_repository.h"
#include "tests/integration/scheduler_model/command.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/invariants.h"

namespace dex::model {
namespace {

constexpr int kWorkers = 4;

// Leases are so short that outages and slow moments cost some of them: then there are zombies too.
store::StoreTimes hasty() {
  store::StoreTimes times;
  times.lease_ms = 1000;
  times.settle_ms = 300;
  times.gap_ms = 1500;
  times.crash_backoff_ms = times.retry_backoff_ms = 1;
  return times;
}

// Also when Redis does not come back and the test ends with an exception.
struct StopAtEnd {
  std::atomic<bool>& stop;
  ~StopAtEnd() { stop = true; }
};

class KillTest : public testing::Test {
 protected:
  // The log is rewritten often: that is when a kill could hurt most, and a start stays short.
  KillTest() : server_("auto-aof-rewrite-percentage 50\nauto-aof-rewrite-min-size 2mb\n") {
    server_.call({"HSET", "dex:{s0}:cfg", "events_max", "0"});
    const auto store = new_store();
    EXPECT_TRUE(store->set_tenant("t", 1, 1000000, 1000, 0).ok());
  }

  std::unique_ptr<store::Store> new_store() {
    store::Store::Options options;
    options.redis.address = server_.address();
    options.redis.connections = 1;
    options.redis.patience = std::chrono::seconds(20);
    options.times = hasty();
    return std::make_unique<store::Store>(options);
  }

  // Submits and runs jobs until it is told to stop.
  void work(int number) {
    const auto store = new_store();
    store::JobRepository jobs(*store);
    store::WorkerRepository workers(*store);
    Dice dice(static_cast<uint64_t>(number));
    const std::string name = "w" + std::to_string(number);
    for (int n = 0; !stop_; ++n) {
      store::WorkerRecord record;
      record.id = name;
      record.pools = {"cpu"};
      record.slots = 1;
      if (n % 50 == 0) EXPECT_TRUE(workers.enlist(record).ok());
      submit(jobs, name + "-" + std::to_string(n));
      run_one(jobs, name, n, dice);
    }
  }

  void submit(store::JobRepository& jobs, const std::string& name) {
    store::JobRepository::Submission submission;
    submission.request.id = submission.request.digest = "r-" + name;
    submission.jobs.resize(1);
    submission.jobs[0].id = "ftjob-" + name;
    submission.jobs[0].spec = "spec of " + name;
    submission.jobs[0].adapter = "ft:b:t::" + name;
    submission.jobs[0].max_fail = submission.jobs[0].max_crash = 1;
    const auto submitted = jobs.submit("t", submission);
    EXPECT_TRUE(submitted.ok()) << submitted.status().to_string();
    if (!submitted.ok()) return;
    const std::lock_guard lock(mutex_);
    acknowledged_.insert(submitted->ids.begin(), submitted->ids.end());
    ++calls_;
  }

  void run_one(store::JobRepository& jobs, const std::string& worker, int n, Dice& dice) {
    const auto claimed = jobs.claim({worker, "c" + std::to_string(n), 0, {"cpu"}});
    EXPECT_TRUE(claimed.ok()) << claimed.status().to_string();
    if (!claimed.ok() || claimed->answer != store::JobRepository::ClaimAnswer::kJob) return;
    const store::ClaimedJob& job = claimed->job;
    store::JobRepository::Beat beat;
    beat.worker = worker;
    beat.id = job.id;
    beat.epoch = job.epoch;
    beat.sequence = 1;
    beat.checkpoint = {"ck-" + std::to_string(job.epoch), "sha", 1};
    beat.events = {{0, "INFO", "metrics", "m", "d"}};
    EXPECT_TRUE(jobs.beat(beat).ok());
    store::JobRepository::Finish finish;
    finish.worker = worker;
    finish.id = job.id;
    finish.epoch = job.epoch;
    finish.outcome = dice.chance(80) ? "success" : dice.chance(50) ? "release" : "crash";
    finish.result_uri = worker + "-" + std::to_string(job.epoch);
    const auto finished = jobs.finish(finish);
    EXPECT_TRUE(finished.ok()) << finished.status().to_string();
    calls_ += 3;
    if (!finished.ok() || finished->state != "SUCCEEDED" || finish.outcome != "success") return;
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(published_.emplace(job.id, finish.result_uri).second) << job.id << " twice";
  }

  void judge() {
    const support::RedisCall call = [&](const std::vector<std::string>& args) {
      return server_.call(args);
    };
    const support::StoreSnapshot store = support::read_store(call);
    support::EventHistory history;
    const int64_t now = server_.call({"TIME"}).num(0) * 1000;
    for (const auto& wrong :
         {history.add(store.events), history.states(store), history.counters(store),
          support::broken_sets(store, now), support::missing_adapters(store)}) {
      for (const std::string& line : wrong) ADD_FAILURE() << line;
    }
    for (const std::string& id : acknowledged_) EXPECT_TRUE(store.jobs.contains(id)) << id;
    for (const auto& [id, uri] : published_) {
      const auto job = store.jobs.find(id);
      ASSERT_NE(job, store.jobs.end()) << id;
      EXPECT_EQ(support::text_of(job->second, "state"), "SUCCEEDED") << id;
      EXPECT_EQ(support::text_of(job->second, "result_uri"), uri) << id;
    }
    const auto fixes = new_store()->reconcile();
    ASSERT_TRUE(fixes.ok()) << fixes.status().to_string();
    EXPECT_EQ(*fixes, 0);
  }

  support::RedisServer server_;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> calls_ = 0;
  std::mutex mutex_;  // guards the next two
  std::set<std::string> acknowledged_;
  std::map<std::string, std::string> published_;  // job → its result
};

TEST_F(KillTest, NothingIsLostAndNothingHappensTwice) {
  const int kills = support::long_form() ? 2000 : 200;
  std::vector<std::jthread> threads;
  const StopAtEnd stop_at_end{stop_};
  for (int i = 0; i < kWorkers; ++i) threads.emplace_back([this, i] { work(i); });
  threads.emplace_back([this] {
    const auto store = new_store();
    while (!stop_) {
      EXPECT_TRUE(store->sweep().ok());
      support::eventually([&] { return stop_.load(); }, 50);
    }
  });
  Dice dice(5);
  double slowest_s = 0;
  for (int kill = 0; kill < kills && !HasFailure(); ++kill) {
    const int64_t goal = calls_ + 1 + dice.pick(40);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(support::eventually([&] { return calls_ >= goal; }));
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    slowest_s = std::max(slowest_s, waited.count());
    server_.restart();
  }
  stop_ = true;
  threads.clear();
  judge();
  EXPECT_GE(acknowledged_.size(), static_cast<size_t>(kills));
  EXPECT_GE(published_.size(), static_cast<size_t>(kills) / 2);
  support::figure("P1", "redis_kills", kills);
  support::figure("P1", "jobs_acknowledged_during_kills",
                  static_cast<double>(acknowledged_.size()));
  support::figure("P1", "calls_again_after_a_kill_max_s", slowest_s);
}

}  // namespace
}  // namespace dex::model
