// P5: Redis or the scheduler may be away for minutes. Running jobs never notice, submits are
// refused with a hint, and everything finds together again.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "tests/e2e/chaos/calls.h"
#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using testing::IsEmpty;

struct Outage {
  const char* name;
  bool redis, scheduler;
};
constexpr Outage kOutages[] = {
    {"redis", true, false}, {"scheduler", false, true}, {"both", true, true}};

// Takes away, waits, gives back. Answers how long after that a submit was taken, in s.
double suffer(ChaosPlatform& platform, const Outage& outage, int64_t length_ms, std::string& job) {
  const base::SystemClock clock;
  const int64_t began_ms = clock.steady_ms();
  if (outage.scheduler) platform.scheduler().kill();
  if (outage.redis) platform.redis().kill();
  support::expect_refused_submit(platform);
  support::pass_time(std::max<int64_t>(0, length_ms - (clock.steady_ms() - began_ms)));
  if (outage.redis) platform.redis().start();
  if (outage.scheduler) platform.scheduler().start();
  const int64_t back_ms = clock.steady_ms();
  job = platform.submit("ms-1", 5);
  return clock.seconds_since(back_ms);
}

TEST(StoreOutageTest, RunningJobsGoOnAndEverythingReconnects) {
  // Up to thirty leases, which is above what an agent bears unless told otherwise.
  ChaosPlatform platform({.agents = 2, .orphan_limit_ms = 0});
  // Leases of the outages, and the steps that the job needs to live through all of them.
  const std::vector<int64_t> lengths =
      support::long_form() ? std::vector<int64_t>{3, 10, 30} : std::vector<int64_t>{2};
  constexpr int64_t kLease_ms = 3'000, kStep_ms = 20, kBetween_ms = 6'000;
  int64_t total_ms = 0;
  for (const int64_t leases : lengths) total_ms += 3 * (leases * kLease_ms + kBetween_ms);
  const auto last = static_cast<uint32_t>(total_ms / kStep_ms);
  const std::string id = platform.submit("ms-20", last, /*every=*/25);
  ASSERT_TRUE(platform.reaches(id, 1));

  double longest_s = 0;
  for (const int64_t leases : lengths) {
    for (const Outage& outage : kOutages) {
      SCOPED_TRACE(std::string(outage.name) + " for " + std::to_string(leases) + " leases");
      const uint32_t before = platform.step(id);
      std::string next;
      longest_s = std::max(longest_s, suffer(platform, outage, leases * kLease_ms, next));
      EXPECT_TRUE(platform.becomes(next, "SUCCEEDED")) << "work goes on";
      ASSERT_EQ(platform.number(id, "attempt"), 1) << "the outage cost the job its lease";
      // It trained on meanwhile: half of the time at least, on whatever machine.
      const auto steps = static_cast<uint32_t>(leases * kLease_ms / kStep_ms / 2);
      EXPECT_TRUE(platform.reaches(id, std::min(before + steps, last)));
    }
  }
  EXPECT_TRUE(platform.becomes(id, "SUCCEEDED", total_ms + 120'000));
  EXPECT_EQ(platform.number(id, "attempt"), 1);
  EXPECT_EQ(platform.number(id, "crashes"), 0);
  support::figure("P5", "submit_taken_again_max_s", longest_s);
  EXPECT_LT(longest_s, 3 * 6.0);  // reconnects come at most 2.4 s apart
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// At the usual times, where the promise is in minutes: 90 s of neither.
TEST(StoreOutageTest, NinetySecondsAtTheUsualTimes) {
  if (!support::long_form()) return;
  ChaosPlatform::Options options;
  options.times = {};
  options.sweep_ms = 5'000;
  options.beat_ms = 10'000;
  ChaosPlatform platform(options);
  const std::string id = platform.submit("ms-20", 7'500, /*every=*/100);  // 150 s
  ASSERT_TRUE(platform.reaches(id, 1));
  std::string next;
  suffer(platform, {"both", true, true}, 90'000, next);
  EXPECT_TRUE(platform.becomes(id, "SUCCEEDED", 300'000));
  EXPECT_EQ(platform.number(id, "attempt"), 1);
  EXPECT_TRUE(platform.becomes(next, "SUCCEEDED", 120'000));
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
