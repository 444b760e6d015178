// Everything at once, by chance: processes killed and frozen, Redis paused, links cut and plugged,
// while jobs are submitted and watched and a model is asked. Afterwards every acknowledged job has
// ended once, with the result that an undisturbed run would have had, and whoever was not answered
// was told that he may ask again (jobs.md §14, process chaos).
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "services/base/clock.h"
#include "services/base/signals.h"
#include "tests/e2e/chaos/streams.h"
#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using support::Program;
using testing::Each;
using testing::IsEmpty;
using testing::StartsWith;

uint64_t chaos_seed() {
  const char* given = std::getenv("DEX_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("chaos: again with DEX_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

// Submits job after job, each until it is acknowledged, whatever is broken.
class Submitter {
 public:
  Submitter(ChaosPlatform& platform, size_t most)
      : platform_(platform),
        most_(most),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

  std::vector<std::string> finish() {
    thread_.request_stop();
    thread_.join();
    return ids_;
  }
  [[nodiscard]] size_t count() {
    const std::lock_guard lock(mutex_);
    return ids_.size();
  }
  [[nodiscard]] std::string first() {
    const std::lock_guard lock(mutex_);
    return ids_.empty() ? "" : ids_.front();
  }

 private:
  void run(const std::stop_token& stop) {
    client::Client::Options options;
    options.server = platform_.grpc();
    options.timeout = std::chrono::seconds(5);
    client::Client client(options);
    while (!stop.stop_requested() && count() < most_) {
      // The same request until it has an answer, so that it makes one job.
      const auto request = platform_.request("ms-20", 100, /*checkpoint_every=*/10);
      auto job = client.create_job(request);
      while (!job.ok() && !stop.stop_requested()) job = client.create_job(request);
      if (!job.ok()) return;
      // It is not the job's fault how often this test kills its workers.
      eventually([&] { return forgiven(job->id()); });
      {
        const std::lock_guard lock(mutex_);
        ids_.push_back(job->id());
      }
      base::wait_for_stop(stop, 400);  // so that there are submits as long as there is trouble
    }
  }
  bool forgiven(const std::string& id) {
    try {
      platform_.forgive_crashes(id);
      return true;
    } catch (const std::runtime_error&) {
      return false;  // Redis is away
    }
  }

  ChaosPlatform& platform_;
  const size_t most_;
  std::mutex mutex_;
  std::vector<std::string> ids_;  // guarded by mutex_
  std::jthread thread_;
};

// Follows one job over everything that happens to the connection, and notes what it is told.
class Watcher {
 public:
  Watcher(const std::string& server, std::string id)
      : id_(std::move(id)), thread_([this, server](const std::stop_token& stop) {
          client::Client::Options options;
          options.server = server;
          options.stop = stop;
          status_ = client::Client(options).watch_job(id_, 0, [this](const auto& message) {
            if (message.has_event()) seen_.push_back(message.event().sequence());
            return true;
          });
          ended_ = true;
        }) {}

  // Sequence numbers in the order in which they came. Only after the job has ended; once.
  const std::vector<int64_t>& seen() {
    EXPECT_TRUE(eventually([this] { return ended_.load(); })) << "the watch does not end";
    thread_.request_stop();
    thread_.join();
    EXPECT_TRUE(status_.ok()) << status_.to_string();
    return seen_;
  }

 private:
  const std::string id_;
  std::vector<int64_t> seen_;
  base::Status status_;
  std::atomic<bool> ended_ = false;
  std::jthread thread_;
};

// What may be done to the platform, each with a way back. Only the test's thread disturbs.
class Disturber {
 public:
  Disturber(ChaosPlatform& platform, uint64_t seed) : platform_(platform), random_(seed) {}

  // Ends what is over, and begins something new unless enough is going on.
  void go_on() {
    std::erase_if(ongoing_, [this](const Trouble& trouble) {
      if (clock_.steady_ms() < trouble.until_ms) return false;
      trouble.undo();
      return true;
    });
    if (ongoing_.size() < 2 && clock_.steady_ms() >= next_ms_) {
      begin();
      next_ms_ = clock_.steady_ms() + within(100, 900);
    }
  }
  void end_all() {
    for (const Trouble& trouble : ongoing_) trouble.undo();
    ongoing_.clear();
  }
  [[nodiscard]] const std::map<std::string, int>& done() const { return done_; }

 private:
  struct Trouble {
    std::string target;
    int64_t until_ms = 0;
    std::function<void()> undo;
  };

  int64_t within(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  // At most one trouble a target: what is killed cannot be frozen.
  void add(const std::string& kind, const std::string& target, int64_t longest_ms,
           const std::function<void()>& act, std::function<void()> undo) {
    for (const Trouble& trouble : ongoing_) {
      if (trouble.target == target) return;
    }
    act();
    ++done_[kind];
    ongoing_.push_back({target, clock_.steady_ms() + within(0, longest_ms), std::move(undo)});
  }
  void kill(const std::string& kind, Program& program) {
    add(
        "kill " + kind, program.name(), 1'500, [&program] { program.kill(); },
        [&program] { program.start(); });
  }
  void freeze(const std::string& kind, Program& program, int64_t longest_ms) {
    add(
        "freeze " + kind, program.name(), longest_ms, [&program] { program.signal(SIGSTOP); },
        [&program] { program.signal(SIGCONT); });
  }

  void begin() {
    const int n = static_cast<int>(within(0, static_cast<int64_t>(platform_.agents().size()) - 1));
    const int m =
        static_cast<int>(within(0, static_cast<int64_t>(platform_.schedulers().size()) - 1));
    auto& redis = platform_.redis();
    auto& link = platform_.agent_link(n);
    switch (within(0, 12)) {
      case 0:
        return add(
            "kill redis", "redis", 1'000, [&] { redis.kill(); }, [&redis] { redis.start(); });
      case 1:
        return add(
            "freeze redis", "redis", 2'000, [&] { redis.signal(SIGSTOP); },
            [&redis] { redis.signal(SIGCONT); });
      case 2:
        return add(
            "pause redis", "redis", 1'000, [this] { pause_redis(); }, [] {});
      case 3:
        return kill("scheduler", platform_.scheduler(m));
      case 4:
        return freeze("scheduler", platform_.scheduler(m), 4'000);
      case 5:
        return kill("gateway", platform_.gateway());
      case 6:
        return kill("agent", platform_.agent(n));
      case 7:
        return freeze("agent", platform_.agent(n), 6'000);
      case 8:
        return kill_children("trainer", platform_.agent(n), "dex-toy-trainer");
      case 9:
        return kill_children("engine", platform_.agent(n), "dex-fake-engine");
      case 10:
        return add(
            "cut agent", platform_.agent(n).name(), 4'000, [&] { link.cut(); },
            [&link] { link.pass(); });
      case 11:
        return add(
            "cut gateway", platform_.gateway().name(), 2'000,
            [this] { platform_.gateway_link().cut(); },
            [this] { platform_.gateway_link().pass(); });
      default:
        return add(
            "plug agent", platform_.agent(n).name(), 6'000, [&] { link.plug(); },
            [&link] { link.pass(); });
    }
  }
  void pause_redis() {
    const std::string ms = std::to_string(within(100, 1'500));
    try {
      platform_.redis().call({"CLIENT", "PAUSE", ms, "ALL"});
    } catch (const std::runtime_error&) {
      // It is still paused by the time before.
    }
  }
  // Who takes care of them starts them again.
  void kill_children(const std::string& kind, const Program& agent, const std::string& program) {
    for (const pid_t child : agent.children(program)) {
      ::kill(child, SIGKILL);
      ++done_["kill " + kind];
    }
  }

  ChaosPlatform& platform_;
  const base::SystemClock clock_{};
  std::mt19937_64 random_;
  std::vector<Trouble> ongoing_;
  std::map<std::string, int> done_;
  int64_t next_ms_ = 0;
};

TEST(ChaosTest, EveryAcknowledgedJobEndsOnceWithItsOwnWholeResult) {
  const uint64_t seed = chaos_seed();
  const int64_t length_ms = support::long_form() ? 600'000 : 18'000;
  ChaosPlatform platform(
      {.schedulers = 2, .agents = 3, .proxies = true, .engine = support::fake_engine()});
  const base::SystemClock clock;
  Submitter submitter(platform, static_cast<size_t>(length_ms / 1'000));
  ASSERT_TRUE(eventually([&] { return submitter.count() > 0; }));
  Watcher watcher(platform.grpc(), submitter.first());
  support::SteadyStreams streams(platform.grpc(), {support::kTinyModel});
  ASSERT_TRUE(streams.go_on());

  Disturber disturber(platform, seed);
  const int64_t end_ms = clock.steady_ms() + length_ms;
  while (clock.steady_ms() < end_ms) {
    disturber.go_on();
    support::pass_time(20);
  }
  disturber.end_all();
  int troubles = 0;
  for (const auto& [kind, times] : disturber.done()) {
    std::printf("chaos: %s %d times\n", kind.c_str(), times);
    troubles += times;
  }
  EXPECT_GE(troubles, length_ms / 3'000);
  const auto ids = submitter.finish();
  EXPECT_GE(ids.size(), 5U);
  // An engine that was killed again and again is started again after a minute at most.
  EXPECT_TRUE(platform.ready(180'000));
  EXPECT_TRUE(streams.go_on());

  // Work goes on: everything that was acknowledged ends, and ends well.
  const int64_t calm_ms = clock.steady_ms();
  for (const std::string& id : ids) {
    EXPECT_TRUE(platform.becomes(id, "SUCCEEDED", 120'000))
        << id << " is " << platform.state(id) << ": " << platform.record(id)["why"];
  }
  support::figure("P1", "chaos_acknowledged_jobs", static_cast<double>(ids.size()));
  support::figure("P1", "chaos_troubles", troubles);
  support::figure("P1", "chaos_backlog_done_s", clock.seconds_since(calm_ms));
  const auto unanswered = streams.finish();
  EXPECT_THAT(unanswered, Each(StartsWith("UNAVAILABLE ")));
  support::figure("P20", "chaos_streams_whole", streams.whole());
  support::figure("P20", "chaos_streams_unavailable", static_cast<double>(unanswered.size()));

  // The watcher was told every event, once and in order.
  v1::ListFineTuningEventsRequest request;
  request.set_id(submitter.first());
  request.set_page_size(1000);
  const auto events = platform.api().list_events(request);
  ASSERT_TRUE(events.ok()) << events.status().to_string();
  std::vector<int64_t> stored;
  for (const auto& event : events->events()) stored.push_back(event.sequence());
  EXPECT_EQ(watcher.seen(), stored);

  // P18: who was killed has lost its counts; who lives counts what happens, and nothing else.
  const auto miscounted = platform.miscounted_during([&platform] {
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(platform.becomes(platform.submit("ms-1", 10), "SUCCEEDED"));
  });
  EXPECT_THAT(miscounted, IsEmpty());
  support::figure("P18", "miscounted_after_chaos", static_cast<double>(miscounted.size()));
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
