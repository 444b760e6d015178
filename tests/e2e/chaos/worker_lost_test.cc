// P3: the job of a dead worker is READY within a lease, a sweep and a little, and goes on from the
// last checkpoint that the scheduler has acknowledged.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>

#include "services/base/clock.h"
#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using support::Program;
using support::slack;
using testing::IsEmpty;

class WorkerLostTest : public testing::Test {
 protected:
  // Lease, sweep and 5 s, the latter as small as the lease is against the usual 30 s.
  static int64_t promised_ms(const ChaosPlatform::Options& options) {
    return options.times.lease_ms + options.sweep_ms + options.times.lease_ms / 6;
  }
  static ChaosPlatform::Options usual_times() {
    ChaosPlatform::Options options{.agents = 2};
    options.times = {};
    options.sweep_ms = 5'000;
    options.beat_ms = 10'000;
    return options;
  }
  // A job that somebody trains, with a checkpoint that the store knows.
  static std::string start(ChaosPlatform& platform) {
    const std::string id = platform.submit("ms-20.gate-60", 80);
    EXPECT_TRUE(eventually([&] { return platform.number(id, "ckpt_step") >= 5; }));
    return id;
  }
  // From `since_ms` until its lease was taken back, in ms; and how it then went on.
  static int64_t recovery(ChaosPlatform& platform, const std::string& id, int64_t since_ms,
                          int64_t limit_ms) {
    EXPECT_TRUE(eventually([&] { return platform.number(id, "attempt") == 2; }, limit_ms));
    platform.open_gate(id);
    EXPECT_TRUE(platform.becomes(id, "SUCCEEDED"));
    const uint32_t pointer = platform.last_event(id, "job_start").job_start().resumed_from_step();
    const auto went_on = platform.last_event(id, "training_start");
    EXPECT_EQ(went_on.attempt(), 2U);
    EXPECT_EQ(went_on.training_start().resumed_from_step(), pointer);
    EXPECT_GE(pointer, 5U);
    EXPECT_EQ(platform.number(id, "crashes"), 1);
    EXPECT_EQ(platform.number(id, "failures"), 0);
    for (const auto& step : platform.transitions(id)) {
      if (step.at("why") != "lease_expired") continue;
      EXPECT_EQ(step.at("state"), "READY");
      return std::stoll(step.at("ms")) - since_ms;
    }
    ADD_FAILURE() << "no lease of " << id << " ran out";
    return 0;
  }
};

TEST_F(WorkerLostTest, ItsJobIsReadyInTimeAndGoesOnFromTheAcknowledgedCheckpoint) {
  const ChaosPlatform::Options options{.agents = 2, .times = ChaosPlatform::kNoSettling};
  ChaosPlatform platform(options);
  const base::SystemClock clock;
  int64_t longest_ms = 0;
  for (int run = 0; run < (support::long_form() ? 50 : 2); ++run) {
    const std::string id = start(platform);
    Program& lost = platform.agent(ChaosPlatform::agent_of(platform.record(id)["worker"]));
    lost.kill();
    const int64_t limit_ms = slack() * promised_ms(options);
    const int64_t took_ms = recovery(platform, id, clock.now_ms(), limit_ms);
    EXPECT_LE(took_ms, limit_ms);
    longest_ms = std::max(longest_ms, took_ms);
    lost.start();
    ASSERT_TRUE(platform.ready());
  }
  support::figure("P3", "recovery_max_s", static_cast<double>(longest_ms) / 1000);
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// Once at the usual times: 40 s.
TEST_F(WorkerLostTest, ItsJobIsReadyInTimeAtTheUsualTimesToo) {
  if (!support::long_form()) return;
  const ChaosPlatform::Options options = usual_times();
  ChaosPlatform platform(options);
  ASSERT_TRUE(platform.settled());
  const std::string id = start(platform);
  platform.agent(ChaosPlatform::agent_of(platform.record(id)["worker"])).kill();
  const base::SystemClock clock;
  const int64_t limit_ms = slack() * promised_ms(options);
  const int64_t took_ms = recovery(platform, id, clock.now_ms(), limit_ms);
  EXPECT_LE(took_ms, limit_ms);
  support::figure("P3", "recovery_usual_s", static_cast<double>(took_ms) / 1000);
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// The scheduler was away too, for longer than the gap: one settle window more. In the long form at
// the usual times.
TEST_F(WorkerLostTest, ASchedulerThatDiedTooCostsOneSettleWindowMore) {
  const auto options = support::long_form() ? usual_times() : ChaosPlatform::Options{.agents = 2};
  ChaosPlatform platform(options);
  const std::string id = start(platform);
  const base::SystemClock clock;
  const int64_t killed_ms = clock.now_ms();
  platform.scheduler().kill();
  platform.agent(ChaosPlatform::agent_of(platform.record(id)["worker"])).kill();
  support::pass_time(options.times.gap_ms + options.sweep_ms);
  platform.scheduler().start();

  const int64_t promise_ms = promised_ms(options) + options.times.settle_ms;
  const int64_t took_ms = recovery(platform, id, killed_ms, slack() * promise_ms);
  EXPECT_LE(took_ms, slack() * promise_ms);
  EXPECT_GE(took_ms, options.times.gap_ms + options.times.settle_ms)
      << "nobody may lose a lease in the settle window";
  support::figure(
      "P3", support::long_form() ? "recovery_with_scheduler_usual_s" : "recovery_with_scheduler_s",
      static_cast<double>(took_ms) / 1000);
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
