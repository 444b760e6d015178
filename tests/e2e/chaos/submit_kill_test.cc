// P1 and P6: a submit that was answered is there, whatever then happens to the scheduler that
// answered it, and however often it had to be sent it is one job. kill -9 of both replicas at
// random moments under four threads that submit through the gateway.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "services/base/clock.h"
#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using support::Program;
using testing::IsEmpty;

// Threads that submit job after job, each with the same request until it has its answer, also when
// they are asked to end: so in the end there is a job for every request, and no other.
class Submitters {
 public:
  Submitters(const ChaosPlatform& platform, const std::string& server) {
    for (int i = 0; i < 4; ++i) {
      threads_.emplace_back(
          [this, &platform, server](const std::stop_token& stop) { run(platform, server, stop); });
    }
  }

  size_t count() {
    const std::lock_guard lock(mutex_);
    return ids_.size();
  }
  // All that were acknowledged.
  const std::set<std::string>& finish() {
    for (auto& thread : threads_) thread.request_stop();
    threads_.clear();
    return ids_;
  }

 private:
  void run(const ChaosPlatform& platform, const std::string& server, const std::stop_token& stop) {
    client::Client::Options options;
    options.server = server;
    options.timeout = std::chrono::seconds(10);
    client::Client client(options);
    while (!stop.stop_requested()) {
      const auto request = platform.request("ms-1", 5);
      auto job = client.create_job(request);
      for (int tries = 0; !job.ok() && tries < 6; ++tries) job = client.create_job(request);
      if (!job.ok()) {
        ADD_FAILURE() << "a submit is not taken for a minute: " << job.status().to_string();
        return;
      }
      const std::lock_guard lock(mutex_);
      EXPECT_TRUE(ids_.insert(job->id()).second) << "two requests, one job " << job->id();
    }
  }

  std::mutex mutex_;
  std::set<std::string> ids_;  // guarded by mutex_
  std::vector<std::jthread> threads_;
};

class SubmitKillTest : public testing::Test {
 protected:
  // The one agent stands at a gate until all is over, with a lease that outlasts every restart:
  // what becomes of running jobs is not the matter here.
  SubmitKillTest()
      : platform_(
            {.schedulers = 2, .times = {20'000, 6'000, 2'000, 0, 0, 60'000}, .proxies = true}) {
    gated_ = platform_.submit("gate-1", 3);
    EXPECT_TRUE(platform_.becomes(gated_, "RUNNING"));
  }

  int64_t within(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  int64_t jobs() { return platform_.redis().call({"ZCARD", "dex:{s0}:tjobs:default"}).integer; }

  std::mt19937 random_{11};
  ChaosPlatform platform_;
  std::string gated_;
};

TEST_F(SubmitKillTest, WhatASchedulerAcknowledgedOutlivesItAndIsThereOnce) {
  const int kills = support::long_form() ? 200 : 8;
  const base::SystemClock clock;
  double slowest_s = 0;
  Submitters submitters(platform_, platform_.grpc());
  for (int kill = 0; kill < kills && !HasFailure(); ++kill) {
    const size_t goal = submitters.count() + 1 + static_cast<size_t>(within(0, 12));
    EXPECT_TRUE(eventually([&] { return submitters.count() >= goal; }));
    // In turn, for the gateway stays with the one that took it up; at times both.
    Program& victim = platform_.scheduler(kill % 2);
    Program& other = platform_.scheduler(1 - kill % 2);
    const bool both = kill % 4 == 3;
    const int64_t killed_ms = clock.steady_ms();
    victim.kill();
    if (both) other.kill();
    const size_t before = submitters.count();
    victim.start();
    if (both) other.start();
    EXPECT_TRUE(eventually([&] { return submitters.count() > before; }));
    slowest_s = std::max(slowest_s, clock.seconds_since(killed_ms));
    EXPECT_TRUE(eventually([&] { return victim.ready() && other.ready(); }));
  }
  const auto acknowledged = submitters.finish();
  EXPECT_EQ(jobs(), static_cast<int64_t>(acknowledged.size()) + 1) << "jobs that nobody knows of";
  for (const std::string& id : acknowledged) {
    EXPECT_EQ(platform_.state(id), "READY") << id << " was acknowledged";
  }
  support::figure("P1", "scheduler_kills", kills);
  support::figure("P1", "jobs_acknowledged_during_scheduler_kills",
                  static_cast<double>(acknowledged.size()));
  support::figure("P1", "submits_again_after_a_scheduler_kill_max_s", slowest_s);

  platform_.open_gate(gated_);
  EXPECT_TRUE(platform_.becomes(gated_, "SUCCEEDED"));
  ASSERT_FALSE(acknowledged.empty());
  EXPECT_TRUE(eventually([&] { return platform_.state(*acknowledged.begin()) == "SUCCEEDED"; }))
      << "work goes on";
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
