// Thousands of watches of one job on one gateway: how soon an event is with all of them, what they
// cost, and that they all come back after a restart, from where they were.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "services/base/clock.h"
#include "tests/e2e/watch/watch_crowd.h"
#include "tests/support/chaos_platform.h"
#include "tests/support/figures.h"
#include "tests/support/processes.h"
#include "tests/support/sanitizer.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::Program;
using support::WatchCrowd;
using testing::IsEmpty;

constexpr int kChannels = 40;  // 125 watches each: a connection carries 128 calls

int crowd_size() {
  return support::long_form() ? 5000 : 400;
}

// One job that nobody runs: it is paused and resumed in turn, and each is one event.
class CrowdTest : public testing::Test {
 protected:
  CrowdTest() : platform_({.agents = 0}), id_(platform_.submit("ms-1", 5)) {
    for (const auto& [name, program] : measured()) before_.push_back(mib(*program));
  }

  std::vector<std::pair<std::string, Program*>> measured() {
    return {{"gateway", &platform_.gateway()}, {"scheduler", &platform_.scheduler()}};
  }
  static double mib(const Program& program) { return support::resident_mib(program.pid()); }

  // Makes an event; how long until the last of the crowd has it, in s.
  double tell(const WatchCrowd& crowd) {
    const int64_t began_ms = clock_.steady_ms();
    ++sequence_;
    const auto job =
        sequence_ % 2 == 0 ? platform_.api().pause_job(id_) : platform_.api().resume_job(id_);
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    // What others ask for meanwhile does not wait for the crowd.
    const int64_t asked_ms = clock_.steady_ms();
    EXPECT_TRUE(platform_.api().get_job(id_).ok());
    beside_s_ = std::max(beside_s_, clock_.seconds_since(asked_ms));
    EXPECT_TRUE(crowd.all_have(sequence_))
        << crowd.behind(sequence_) << " are without event " << sequence_;
    return clock_.seconds_since(began_ms);
  }

  void measure_memory() {
    size_t i = 0;
    for (const auto& [name, program] : measured()) {
      const double now = mib(*program);
      const double each_kib = (now - before_[i++]) * 1024 / crowd_size();
      support::figure("watch", name + "_crowd_mib", now);
      support::figure("watch", name + "_kib_a_watch", each_kib);
      if (support::long_form() && !support::kSanitized) EXPECT_LT(each_kib, 200) << name;
    }
  }

  const base::SystemClock clock_{};
  ChaosPlatform platform_;
  const std::string id_;
  std::vector<double> before_;  // of measured(), MiB
  int64_t sequence_ = 1;        // of the last event: job_queued
  double beside_s_ = 0;
};

TEST_F(CrowdTest, EveryEventReachesAllAndEachComesBackAfterRestarts) {
  const int64_t began_ms = clock_.steady_ms();
  WatchCrowd crowd(platform_.grpc(), id_, crowd_size(), kChannels);
  ASSERT_TRUE(crowd.all_have(sequence_, 120'000)) << crowd.behind(sequence_) << " are not served";
  support::figure("watch", "crowd_watches", crowd_size());
  support::figure("watch", "crowd_begins_s", clock_.seconds_since(began_ms));
  EXPECT_EQ(crowd.returns(), 0) << "all are served at the first try";

  std::vector<double> took_s;
  for (int i = 0; i < 6; ++i) took_s.push_back(tell(crowd));
  std::sort(took_s.begin(), took_s.end());
  support::figure("watch", "event_to_all_median_s", took_s[took_s.size() / 2]);
  support::figure("watch", "event_to_all_max_s", took_s.back());
  support::figure("watch", "other_call_beside_max_s", beside_s_);
  if (!support::kSanitized) {
    EXPECT_LT(took_s.back(), 10);
    EXPECT_LT(beside_s_, 5);
  }
  measure_memory();

  int restarts = 0;
  for (const auto& [name, program] : measured()) {
    if (!support::long_form() && name == "gateway") continue;  // resume_test.cc has it too
    SCOPED_TRACE("restart of the " + name);
    ++restarts;
    program->kill();
    program->start();
    ASSERT_TRUE(platform_.ready());
    support::figure("watch", "crowd_back_after_" + name + "_s", tell(crowd));
  }
  EXPECT_GE(crowd.returns(), restarts * crowd_size());

  EXPECT_TRUE(platform_.api().cancel_job(id_).ok());
  EXPECT_TRUE(crowd.all_have(++sequence_));
  EXPECT_TRUE(crowd.all_ended()) << "a cancelled job has no more to tell";
  EXPECT_THAT(crowd.wrong(), IsEmpty());
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
