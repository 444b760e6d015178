// kill -9 of Redis at random moments, between calls and during them, while four workers submit,
// claim, beat and finish: what was acknowledged is there, and nothing else (P1). With a log that is
// synced once a second instead: what that may cost, and what it may not.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
  explicit KillTest(const std::string& appendfsync = "always")
      : server_("auto-aof-rewrite-percentage 50\nauto-aof-rewrite-min-size 2mb\nappendfsync " +
                appendfsync + "\n") {
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
      submit(jobs, number, name + "-" + std::to_string(n));
      run_one(jobs, name, n, dice);
    }
  }

  void submit(store::JobRepository& jobs, int worker, const std::string& name) {
    const int64_t life = lives_;
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
    auto& own = acknowledged_.at(static_cast<size_t>(worker));
    own.emplace_back(submission.jobs[0].id, lives_ == life ? life : kBetween);
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
    if (!published_.emplace(job.id, finish.result_uri).second) published_again_.insert(job.id);
  }

  // Kills while all work; how long calls were without an answer at most, in s.
  double suffer(int kills) {
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
      server_.kill();
      ++lives_;
      server_.start();
    }
    return slowest_s;
  }

  // Nothing contradicts itself.
  support::StoreSnapshot judged_store() {
    const support::RedisCall call = [&](const std::vector<std::string>& args) {
      return server_.call(args);
    };
    support::StoreSnapshot store = support::read_store(call);
    support::EventHistory history;
    const int64_t now = server_.call({"TIME"}).num(0) * 1000;
    for (const auto& wrong :
         {history.add(store.events), history.states(store), history.counters(store),
          support::broken_sets(store, now), support::missing_adapters(store)}) {
      for (const std::string& line : wrong) ADD_FAILURE() << line;
    }
    const auto fixes = new_store()->reconcile();
    EXPECT_TRUE(fixes.ok()) << fixes.status().to_string();
    if (fixes.ok()) EXPECT_EQ(*fixes, 0);
    return store;
  }
  // Jobs whose result is not the one that their worker published.
  std::vector<std::string> lost_results(const support::StoreSnapshot& store) {
    std::vector<std::string> lost;
    for (const auto& [id, uri] : published_) {
      const auto job = store.jobs.find(id);
      const bool there = job != store.jobs.end() &&
                         support::text_of(job->second, "state") == "SUCCEEDED" &&
                         support::text_of(job->second, "result_uri") == uri;
      if (!there) lost.push_back(id);
    }
    return lost;
  }
  [[nodiscard]] size_t acknowledged() const {
    size_t sum = 0;
    for (const auto& own : acknowledged_) sum += own.size();
    return sum;
  }

  static constexpr int64_t kBetween = -1;  // answered by another Redis than was asked at first

  support::RedisServer server_;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> calls_ = 0;
  std::atomic<int64_t> lives_ = 0;  // that Redis has behind it
  std::mutex mutex_;                // guards the next three
  // By worker, in the order of their answers: job, and in which life it was asked and answered.
  std::array<std::vector<std::pair<std::string, int64_t>>, kWorkers> acknowledged_;
  std::map<std::string, std::string> published_;  // job → its first result
  std::set<std::string> published_again_;
};

TEST_F(KillTest, NothingIsLostAndNothingHappensTwice) {
  const int kills = support::long_form() ? 2000 : 200;
  const double slowest_s = suffer(kills);
  const auto store = judged_store();
  for (const auto& own : acknowledged_) {
    for (const auto& [id, life] : own) EXPECT_TRUE(store.jobs.contains(id)) << id;
  }
  for (const std::string& id : lost_results(store)) ADD_FAILURE() << "the result of " << id;
  for (const std::string& id : published_again_) ADD_FAILURE() << id << " was published twice";
  EXPECT_GE(acknowledged(), static_cast<size_t>(kills));
  EXPECT_GE(published_.size(), static_cast<size_t>(kills) / 2);
  support::figure("P1", "redis_kills", kills);
  support::figure("P1", "jobs_acknowledged_during_kills", static_cast<double>(acknowledged()));
  support::figure("P1", "calls_again_after_a_kill_max_s", slowest_s);
}

class EverySecondKillTest : public KillTest {
 protected:
  // What every call depends on, the tenant's limits, is in the log before the first kill.
  EverySecondKillTest() : KillTest("everysec") {
    EXPECT_TRUE(support::eventually([this] {
      const std::string log = server_.call({"INFO", "persistence"}).text;
      return log.find("aof_buffer_length:0\r") != std::string::npos;
    }));
  }
};

// jobs.md §14: the same, to know the difference. While a sync is under way Redis keeps what it
// acknowledges to itself, and a kill takes that along: the last of a life, never one before it
// alone, and the store that is left contradicts itself in nothing.
TEST_F(EverySecondKillTest, OnlyTheLastWordsAreLostAndTheRestIsWhole) {
  const int kills = support::long_form() ? 500 : 25;
  suffer(kills);
  const auto store = judged_store();
  int64_t jobs_lost = 0;
  for (const auto& own : acknowledged_) {
    std::set<int64_t> losing;  // lives of which one was lost
    for (const auto& [id, life] : own) {
      const bool lost = !store.jobs.contains(id);
      jobs_lost += lost ? 1 : 0;
      if (life == kBetween) continue;
      EXPECT_TRUE(lost || !losing.contains(life)) << id << " is there, and one before it is not";
      if (lost) losing.insert(life);
    }
  }
  EXPECT_GE(acknowledged(), static_cast<size_t>(kills));
  support::figure("P1", "everysec_redis_kills", kills);
  support::figure("P1", "everysec_jobs_acknowledged", static_cast<double>(acknowledged()));
  support::figure("P1", "everysec_jobs_lost", static_cast<double>(jobs_lost));
  support::figure("P1", "everysec_results_lost", static_cast<double>(lost_results(store).size()));
}

}  // namespace
}  // namespace dex::model
