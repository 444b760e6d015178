// What 100,000 queued jobs of 200 tenants cost: memory, and the time of every script (P17).
#include <algorithm>
#include <map>

#include "scheduler/store/script.h"
#include "tests/integration/scheduler_scale/full_store.h"
#include "tests/support/figures.h"

namespace dex::scale {
namespace {

constexpr double kLongest_ms = 50;
constexpr int kAttempts = 3;  // the machine has other work too, but not thrice at the same script

class ScriptsTest : public FullStoreTest {
 protected:
  ScriptsTest() : store_(new_store()), jobs_(*store_), workers_(*store_) {}

  void enlist(const std::string& worker) {
    store::WorkerRecord record;
    record.id = worker;
    for (int i = 0; i < kPools; ++i) record.pools.push_back(pool_name(i));
    record.slots = 32;
    ASSERT_TRUE(workers_.enlist(record).ok());
  }

  // `n` attempts by several workers.
  std::vector<std::pair<store::ClaimedJob, std::string>> claim_some(int n) {
    std::vector<std::pair<store::ClaimedJob, std::string>> claimed;
    for (int i = 0; i < n; ++i) {
      const std::string worker = "w" + std::to_string(i % 8);
      store::JobRepository::ClaimRequest request;
      request.worker = worker;
      request.claim_id = "c" + std::to_string(++made_) + "-" + std::to_string(round_);
      request.slot = i / 8;
      for (int k = 0; k < 8; ++k) request.pools.push_back(pool_name((i + k) % kPools));
      const auto claim = jobs_.claim(request);
      EXPECT_TRUE(claim.ok()) << claim.status().to_string();
      if (claim.ok() && !claim->job.id.empty()) claimed.emplace_back(claim->job, worker);
    }
    EXPECT_EQ(claimed.size(), static_cast<size_t>(n));
    return claimed;
  }

  void beat(const store::ClaimedJob& job, const std::string& worker) {
    store::JobRepository::Beat beat;
    beat.worker = worker;
    beat.id = job.id;
    beat.epoch = job.epoch;
    beat.sequence = 1;
    beat.progress = std::string(512, 'p');
    beat.events.assign(128, {0, "INFO", "metrics", "m", std::string(200, 'd')});
    EXPECT_TRUE(jobs_.beat(beat).ok());
  }

  void finish(const store::ClaimedJob& job, const std::string& worker, const std::string& outcome) {
    store::JobRepository::Finish finish;
    finish.worker = worker;
    finish.id = job.id;
    finish.epoch = job.epoch;
    finish.outcome = outcome;
    finish.result_uri = "uri";
    EXPECT_TRUE(jobs_.finish(finish).ok());
  }

  // Attempts from claim to end, and 100 leases that run out in one sweep.
  void run_attempts() {
    for (int i = 0; i < 8; ++i) enlist("w" + std::to_string(i));
    EXPECT_TRUE(store_->sweep().ok());
    auto claimed = claim_some(200);
    for (const auto& [job, worker] : claimed) beat(job, worker);
    for (size_t i = 100; i < claimed.size(); ++i) {
      finish(claimed[i].first, claimed[i].second, i % 3 == 0 ? "fail_final" : "success");
    }
    for (int i = 0; i < 4; ++i) {
      filled_->clock.advance_ms(15001);
      EXPECT_TRUE(store_->sweep().ok());
    }
    ended_.clear();
    for (size_t i = 100; i < claimed.size(); ++i) ended_.push_back(claimed[i].first);
  }

  // What clients, operators and the janitor do.
  void run_clients() {
    for (int i = 0; i < 40; ++i) {
      const std::string id = "ftjob-one" + std::to_string(1000 + round_ * 40 + i);
      const std::string tenant = tenant_name((1000 + round_ * 40 + i) % kTenants);
      EXPECT_TRUE(jobs_.get(tenant, id).ok());
      EXPECT_TRUE(jobs_.list(tenant, {}, 100).ok());
      (void)jobs_.pause(tenant, id);
      (void)jobs_.resume(tenant, id);
      store::JobRepository::Update update;
      update.priority = i % 10;
      (void)jobs_.update(tenant, id, update);
      (void)jobs_.cancel(tenant, id, "");
      EXPECT_TRUE(store_->set_tenant(tenant, 1 + i % 3, 1'000'000, 1000, 0).ok());
    }
    for (const store::ClaimedJob& job : ended_) {
      (void)jobs_.redrive(job.tenant, job.id, {job.id + "-" + std::to_string(round_), "x"}, 0);
      (void)jobs_.purge_mark(job.tenant, job.id, 0);
      (void)jobs_.purge_commit(job.tenant, job.id);
    }
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(store_->stats().ok());
      EXPECT_TRUE(workers_.routes().ok());
      EXPECT_TRUE(jobs_.finished(-1, "", 100).ok());
      fill(*filled_->server, 64, 64, "r" + std::to_string(round_ * 5 + i) + "x",
           [this] { return filled_->clock.now_ms(); });
    }
  }

  // Script → its longest run in ms, by Redis' own clock, while `work` is done.
  std::map<std::string, double> longest(const std::function<void()>& work) {
    support::RedisServer& server = *filled_->server;
    server.call({"CONFIG", "SET", "slowlog-max-len", "100000"});
    server.call({"CONFIG", "SET", "slowlog-log-slower-than", "0"});
    server.call({"SLOWLOG", "RESET"});
    work();
    server.call({"CONFIG", "SET", "slowlog-log-slower-than", "-1"});
    std::map<std::string, std::string> names;
    for (const store::Script& script : store::all_scripts()) names[script.sha1] = script.name;
    std::map<std::string, double> times;
    for (const store::Reply& entry : server.call({"SLOWLOG", "GET", "-1"}).elements) {
      if (entry.at(3).str(0) != "EVALSHA") continue;
      double& most = times[names[entry.at(3).str(1)]];
      most = std::max(most, static_cast<double>(entry.num(2)) / 1000);
    }
    return times;
  }

  std::unique_ptr<store::Store> store_;
  store::JobRepository jobs_;
  store::WorkerRepository workers_;
  std::vector<store::ClaimedJob> ended_;
  int made_ = 0, round_ = 0;
};

TEST_F(ScriptsTest, QueuedJobsFitIntoTheMemoryThatIsPromised) {
  constexpr double kMebibyte = 1024.0 * 1024.0;
  const double all = static_cast<double>(filled_->bytes_in_all) / kMebibyte;
  // One by one each has a request_id of its own, which is kept for a day.
  const double one_by_one = static_cast<double>(filled_->bytes_a_job) * kJobs / kMebibyte;
  support::figure("P17", "memory_of_100000_jobs_mib", all);
  support::figure("P17", "bytes_a_job", static_cast<double>(filled_->bytes_a_job));
  EXPECT_LE(all, 450);
  EXPECT_LE(one_by_one, 500) << filled_->bytes_a_job << " bytes a job";
}

TEST_F(ScriptsTest, NoScriptIsLong) {
  std::map<std::string, double> best;
  for (; round_ < kAttempts; ++round_) {
    const auto times = longest([&] {
      run_attempts();
      run_clients();
    });
    bool all_short = true;
    for (const auto& [script, ms] : times) {
      best[script] = best.contains(script) ? std::min(best[script], ms) : ms;
      all_short = all_short && best[script] <= kLongest_ms;
    }
    if (all_short) break;
  }
  for (const char* script :
       {"submit", "claim", "beat", "finish", "cancel", "pause", "resume", "redrive", "reprio",
        "purge", "sweep", "list", "read", "stats", "routes", "finished", "tenant", "worker"}) {
    EXPECT_TRUE(best.contains(script)) << script << " was not measured";
  }
  for (const auto& [script, ms] : best) {
    EXPECT_LE(ms, kLongest_ms) << script;
    support::figure("P17", script + "_max_ms", ms);
  }
}

// The long form reads every job several times, the short one a page of each kind.
TEST_F(ScriptsTest, ReconcileFindsNothingToRepair) {
  const std::string lease_ms = std::to_string(store_->times().lease_ms);
  std::vector<std::string> jobs = {"jobs", lease_ms},
                           set = {"set", lease_ms, "ready:" + pool_name(0)};
  for (int i = 0; i < 100; ++i) {
    jobs.push_back("ftjob-many" + std::to_string(50'000 + i));
    set.push_back("ftjob-many" + std::to_string(60'000 + i * kPools));
  }
  auto times = longest([&] {
    for (const auto& page : {jobs, set}) {
      const auto reply = store_->run("reconcile", page);
      ASSERT_TRUE(reply.ok()) << reply.status().to_string();
      EXPECT_EQ(reply->num(1), 0) << page[0];
    }
    if (!support::long_form()) return;
    const auto fixes = store_->reconcile();
    ASSERT_TRUE(fixes.ok()) << fixes.status().to_string();
    EXPECT_EQ(*fixes, 0);
  });
  EXPECT_LE(times["reconcile"], kLongest_ms);
  support::figure("P17", "reconcile_max_ms", times["reconcile"]);
}

}  // namespace
}  // namespace dex::scale
