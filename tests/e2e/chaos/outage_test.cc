// P5: Redis or the scheduler may be away for minutes. Running jobs and generations never notice,
// submits are refused with a hint, and everything finds together again.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "tests/e2e/chaos/calls.h"
#include "tests/e2e/chaos/streams.h"
#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::slack;
using support::SteadyStreams;
using testing::IsEmpty;

struct Outage {
  const char* name;
  bool redis, scheduler;
};
constexpr Outage kOutages[] = {
    {"redis", true, false}, {"scheduler", false, true}, {"both", true, true}};
constexpr int64_t kStep_ms = 20;

// A platform with a job that lives through outages, and generations beside it.
class StoreOutageTest : public testing::Test {
 protected:
  // Two agents: one for the job, one for what is submitted in between. Outages of up to thirty
  // leases are more than an agent bears unless told otherwise.
  static ChaosPlatform::Options options() {
    return {.agents = 2, .orphan_limit_ms = 0, .engine = support::fake_engine()};
  }

  // Each outage for each of these times; `between_ms`: what the job may need besides for one.
  // `what`: the figure's name.
  static void suffer_all(ChaosPlatform& platform, const std::vector<int64_t>& lengths_ms,
                         int64_t between_ms, const std::string& what) {
    int64_t total_ms = 0;
    for (const int64_t length : lengths_ms) total_ms += 3 * (length + between_ms);
    const auto last = static_cast<uint32_t>(total_ms / kStep_ms);
    const std::string id = platform.submit("ms-20", last, /*checkpoint_every=*/25);
    ASSERT_TRUE(platform.reaches(id, 1));
    SteadyStreams streams(platform.grpc(), {support::kTinyModel});
    ASSERT_TRUE(streams.go_on());

    double longest_s = 0;
    for (const int64_t length_ms : lengths_ms) {
      for (const Outage& outage : kOutages) {
        SCOPED_TRACE(std::string(outage.name) + " for " + std::to_string(length_ms) + " ms");
        const uint32_t before = platform.step(id);
        std::string next;
        longest_s = std::max(longest_s, suffer(platform, outage, length_ms, streams, next));
        EXPECT_TRUE(platform.becomes(next, "SUCCEEDED", 120'000)) << "work goes on";
        ASSERT_EQ(platform.number(id, "attempt"), 1) << "the outage cost the job its lease";
        // It trained on meanwhile: half of the time at least, on whatever machine.
        const auto steps = static_cast<uint32_t>(length_ms / kStep_ms / 2);
        EXPECT_TRUE(platform.reaches(id, std::min(before + steps, last)));
      }
    }
    EXPECT_TRUE(platform.becomes(id, "SUCCEEDED", total_ms + 120'000));
    EXPECT_EQ(platform.number(id, "attempt"), 1);
    EXPECT_EQ(platform.number(id, "crashes"), 0);
    EXPECT_THAT(streams.finish(), IsEmpty()) << "generations that the outage reached";
    support::figure("P5", what, longest_s);
    support::figure("P19", "streams_answered_beside_outages", streams.whole());
    EXPECT_LT(longest_s, slack() * 6.0);  // reconnects come at most 2.4 s apart
    EXPECT_THAT(platform.wrong(), IsEmpty());
  }

 private:
  // Takes away, waits, gives back. Answers how long after that a submit was taken, in s.
  static double suffer(ChaosPlatform& platform, const Outage& outage, int64_t length_ms,
                       const SteadyStreams& streams, std::string& job) {
    const base::SystemClock clock;
    const int64_t began_ms = clock.steady_ms();
    if (outage.scheduler) platform.scheduler().kill();
    if (outage.redis) platform.redis().kill();
    support::expect_refused_submit(platform);
    EXPECT_TRUE(streams.go_on()) << "nobody is answered at its begin";
    support::pass_time(std::max<int64_t>(0, length_ms - (clock.steady_ms() - began_ms)));
    EXPECT_TRUE(streams.go_on()) << "nobody is answered at its end";
    if (outage.redis) platform.redis().start();
    if (outage.scheduler) platform.scheduler().start();
    const int64_t back_ms = clock.steady_ms();
    job = platform.submit("ms-1", 5);
    return clock.seconds_since(back_ms);
  }
};

TEST_F(StoreOutageTest, RunningJobsGoOnAndEverythingReconnects) {
  ChaosPlatform platform(options());
  constexpr int64_t kLease_ms = 3'000;
  std::vector<int64_t> lengths_ms = {2 * kLease_ms};
  if (support::long_form()) lengths_ms = {3 * kLease_ms, 10 * kLease_ms, 30 * kLease_ms};
  suffer_all(platform, lengths_ms, 6'000, "submit_taken_again_max_s");
}

// At the usual times, where the promise is in minutes: 90 s of each.
TEST_F(StoreOutageTest, NinetySecondsAtTheUsualTimes) {
  if (!support::long_form()) return;
  auto usual = options();
  usual.times = {};
  usual.sweep_ms = 5'000;
  usual.beat_ms = 10'000;
  ChaosPlatform platform(usual);
  suffer_all(platform, {90'000}, 60'000, "submit_taken_again_usual_max_s");
}

}  // namespace
}  // namespace dex
