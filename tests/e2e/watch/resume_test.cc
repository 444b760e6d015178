// Watchers live through restarts of everything that lies between them and the trainer: each is told
// every event once and in order, as it is stored, and then that the job has ended.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
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

// One watcher with a connection of its own.
class Listener {
 public:
  Listener(const std::string& server, const std::string& id, int64_t after)
      : after_(after), last_(after), thread_([this, server, id](const std::stop_token& stop) {
          client::Client::Options options;
          options.server = server;
          options.stop = stop;
          end_ = client::Client(options).watch_job(id, after_, [this](const auto& message) {
            if (!message.has_event()) return true;
            seen_.push_back(message.event().SerializeAsString());
            last_ = message.event().sequence();
            return true;
          });
          ended_ = true;
        }) {}

  [[nodiscard]] int64_t after() const { return after_; }
  [[nodiscard]] int64_t last() const { return last_; }
  // Its events as they came, once the job has ended.
  const std::vector<std::string>& seen() {
    EXPECT_TRUE(eventually([this] { return ended_.load(); })) << "the watch does not end";
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
    EXPECT_TRUE(end_.ok()) << end_.to_string();
    return seen_;
  }

 private:
  const int64_t after_;
  std::atomic<int64_t> last_;
  std::vector<std::string> seen_;
  base::Status end_;
  std::atomic<bool> ended_ = false;
  std::jthread thread_;
};

class WatchResumeTest : public testing::Test {
 protected:
  WatchResumeTest() : platform_({.beat_ms = 200}) {
    id_ = platform_.submit("ms-50.points-1", 100'000, /*checkpoint_every=*/25);
    platform_.forgive_crashes(id_);
  }

  struct Restart {
    std::string name;
    std::function<void()> act;
  };
  std::vector<Restart> restarts() {
    const auto again = [](Program& program) {
      program.kill();
      program.start();
    };
    return {{"gateway", [=, this] { again(platform_.gateway()); }},
            {"redis", [this] { platform_.redis().restart(); }},
            {"scheduler", [=, this] { again(platform_.scheduler()); }},
            {"worker", [=, this] { restart_worker(again); }}};
  }
  // Killed only in the long form, which has time for a lease to run out.
  void restart_worker(const std::function<void(Program&)>& kill) {
    if (support::long_form()) return kill(platform_.agent());
    EXPECT_EQ(platform_.agent().stop(30'000), 0);
    platform_.agent().start();
  }

  void listen(int64_t after) {
    listeners_.push_back(std::make_unique<Listener>(platform_.grpc(), id_, after));
  }
  // All of them have an event later than `sequence`.
  bool all_beyond(int64_t sequence) {
    return eventually([&] {
      return std::all_of(listeners_.begin(), listeners_.end(),
                         [&](const auto& listener) { return listener->last() > sequence; });
    });
  }
  int64_t stored() { return platform_.number(id_, "seq"); }

  // Every event with a number above `after`, as a list has it.
  std::vector<std::string> listed(int64_t after) {
    std::vector<std::string> events;
    v1::ListFineTuningEventsRequest request;
    request.set_id(id_);
    request.set_page_size(1000);
    request.set_after_sequence(after);
    while (true) {
      const auto page = platform_.api().list_events(request);
      EXPECT_TRUE(page.ok()) << page.status().to_string();
      if (!page.ok()) return events;
      for (const auto& event : page->events()) {
        events.push_back(event.SerializeAsString());
        request.set_after_sequence(event.sequence());
      }
      if (!page->has_more()) return events;
    }
  }

  const base::SystemClock clock_{};
  ChaosPlatform platform_;
  std::string id_;
  std::vector<std::unique_ptr<Listener>> listeners_;
};

TEST_F(WatchResumeTest, EachEventIsToldOnceOverRestartsOfEverything) {
  for (int i = 0; i < 4; ++i) listen(0);
  ASSERT_TRUE(all_beyond(5));
  listen(3);
  const int rounds = support::long_form() ? 5 : 1;
  for (int round = 0; round < rounds; ++round) {
    for (const Restart& restart : restarts()) {
      SCOPED_TRACE("restart of the " + restart.name);
      restart.act();
      const int64_t began_ms = clock_.steady_ms();
      ASSERT_TRUE(eventually([&] { return stored() > 0; }));
      ASSERT_TRUE(all_beyond(stored())) << "news come again";
      support::figure("watch", "news_after_" + restart.name + "_restart_s",
                      clock_.seconds_since(began_ms));
    }
    listen(stored());  // who comes now is told what comes now
  }

  EXPECT_TRUE(platform_.api().cancel_job(id_).ok());
  EXPECT_TRUE(platform_.becomes(id_, "CANCELLED"));
  for (const auto& listener : listeners_) {
    const auto& seen = listener->seen();
    EXPECT_FALSE(seen.empty());
    EXPECT_EQ(seen, listed(listener->after())) << "a watch from " << listener->after();
  }
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
