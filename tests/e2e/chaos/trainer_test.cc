// Trainers that crash, hang, block, fill the disk or are deaf (P4, P8, P9, jobs.md §6): each costs
// its job what the table says, and nobody else anything.
#include <gmock/gmock.h>

#include <csignal>
#include <ostream>
#include <set>
#include <string>

#include "services/base/clock.h"
#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using testing::Contains;
using testing::IsEmpty;
using testing::Pair;

// The counters of jobs.md §6, in this order.
struct Budget {
  int64_t failures = 0, crashes = 0, preempts = 0, fulls = 0;
  bool operator==(const Budget&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Budget& b) {
    return out << "failures " << b.failures << ", crashes " << b.crashes << ", preempts "
               << b.preempts << ", fulls " << b.fulls;
  }
};

Budget spent(ChaosPlatform& platform, const std::string& id) {
  return {platform.number(id, "failures"), platform.number(id, "crashes"),
          platform.number(id, "preempts"), platform.number(id, "fulls")};
}

TEST(PoisonTest, ATrainerThatAbortsThriceIsPoisonAndOthersGoOn) {
  ChaosPlatform platform({.agents = 2});
  const std::string poison = platform.submit("abort-7", 20);
  const std::string other = platform.submit("ms-100.gate-20", 30);
  ASSERT_TRUE(platform.becomes(poison, "FAILED"));
  EXPECT_THAT(platform.record(poison), Contains(Pair("why_code", "poison_job")));
  EXPECT_EQ(spent(platform, poison), (Budget{.crashes = 3}));
  EXPECT_EQ(platform.number(poison, "attempt"), 3);
  EXPECT_EQ(platform.last_event(poison, "training_start").training_start().resumed_from_step(), 5U)
      << "each attempt went on from the checkpoint before the crash";
  platform.open_gate(other);
  EXPECT_TRUE(platform.becomes(other, "SUCCEEDED"));
  EXPECT_EQ(platform.number(other, "attempt"), 1);
  support::figure("P8", "crashes_until_poison",
                  static_cast<double>(spent(platform, poison).crashes));
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// Whatever starts agents again, here the test, does so; the job is the culprit.
TEST(PoisonTest, AJobThatKillsItsAgentThriceIsPoisonAndOthersGoOn) {
  ChaosPlatform platform({.agents = 2, .times = ChaosPlatform::kNoSettling});
  const std::string poison = platform.submit("killagent-7", 20);
  ASSERT_TRUE(eventually([&] {
    for (const auto& agent : platform.agents()) {
      if (!agent->running()) agent->start();
    }
    return platform.state(poison) == "FAILED";
  }));
  EXPECT_THAT(platform.record(poison), Contains(Pair("why_code", "poison_job")));
  EXPECT_EQ(spent(platform, poison), (Budget{.crashes = 3}));
  EXPECT_EQ(platform.number(poison, "attempt"), 3);
  ASSERT_TRUE(platform.ready());
  const std::string other = platform.submit("ms-1", 20);
  EXPECT_TRUE(platform.becomes(other, "SUCCEEDED"));
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

TEST(StallTest, ATrainerWithoutStepsIsKilledAndItsJobFailsByItsOwnBudget) {
  ChaosPlatform platform;
  auto request = platform.request("stall-7.upto-1", 20);
  request.mutable_spec()->mutable_watchdog()->set_stall_seconds(2);
  const auto job = platform.api().create_job(request);
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  ASSERT_TRUE(platform.becomes(job->id(), "SUCCEEDED"));
  EXPECT_EQ(spent(platform, job->id()), (Budget{.failures = 1}));
  EXPECT_EQ(platform.number(job->id(), "attempt"), 2);
  bool told = false;
  for (const auto& step : platform.transitions(job->id())) told |= step.at("why") == "fail_retry";
  EXPECT_TRUE(told);
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// P4: heartbeats never depend on the trainer, nor a lease on the time since the claim.
TEST(LongStepTest, AJobKeepsItsLeaseHoweverLongOneStepTakes) {
  ChaosPlatform::Options options{.times = ChaosPlatform::kNoSettling};
  options.times.lease_ms = 1'500;
  ChaosPlatform platform(options);
  // One step of 5 leases (10 in the long form), then some more (100 leases).
  const int64_t leases = support::long_form() ? 10 : 5;
  const std::string block = ".block-7.blockms-" + std::to_string(leases * 1'500);
  const std::string id = platform.submit((support::long_form() ? "ms-1500" : "ms-20") + block,
                                         support::long_form() ? 100 : 20);
  EXPECT_TRUE(platform.becomes(id, "SUCCEEDED", 400'000));
  EXPECT_EQ(platform.number(id, "attempt"), 1);
  EXPECT_EQ(platform.scheduler().metric("dex_lease_lost_total"), 0);
  support::figure("P4", "one_step_leases", static_cast<double>(leases));
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// P9. Its trainer hears nothing, so the agent has to end it.
TEST(CancelTest, ARunningJobIsOrderedWithinABeatAndADeafTrainerIsKilled) {
  const ChaosPlatform::Options options;
  ChaosPlatform platform(options);
  const std::string id = platform.submit("deaf.ms-20", 100'000, /*every=*/1'000);
  const std::string waiting = platform.submit("ms-1", 5);
  ASSERT_TRUE(platform.reaches(id, 3));
  ASSERT_EQ(platform.agent().children("dex-toy-trainer").size(), 1U);

  const base::SystemClock clock;
  ASSERT_TRUE(platform.api().cancel_job(waiting).ok());
  EXPECT_EQ(platform.state(waiting), "CANCELLED") << "a waiting job ends at once";
  const int64_t asked_ms = clock.steady_ms();
  ASSERT_TRUE(platform.api().cancel_job(id).ok());
  EXPECT_TRUE(eventually([&] { return platform.agent().children("dex-toy-trainer").empty(); }));
  const double gone_s = clock.seconds_since(asked_ms);
  EXPECT_TRUE(platform.becomes(id, "CANCELLED"));
  support::figure("P9", "deaf_trainer_gone_s", gone_s);
  // A beat until it is ordered, then the time between SIGTERM and SIGKILL.
  const double promise_s = static_cast<double>(options.beat_ms + options.kill_grace_ms) / 1000;
  EXPECT_LT(gone_s, support::slack() * promise_s);
  const std::string next = platform.submit("ms-1", 5);
  EXPECT_TRUE(platform.becomes(next, "SUCCEEDED")) << "the slot is free again";
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// The job goes on elsewhere from its last good checkpoint; the full machine claims nothing.
TEST(FullDiskTest, ItsJobGoesOnOnAnotherWorkerAndOnlyTheDiskIsToBlame) {
  ChaosPlatform platform({.agents = 2});
  const std::string id = platform.submit("enospc-10.upto-1", 20);
  ASSERT_TRUE(platform.becomes(id, "SUCCEEDED"));
  EXPECT_EQ(spent(platform, id), (Budget{.fulls = 1}));
  EXPECT_EQ(platform.last_event(id, "training_start").training_start().resumed_from_step(), 5U);
  std::set<std::string> workers;
  for (const auto& step : platform.transitions(id)) {
    if (step.at("state") == "RUNNING") workers.insert(step.at("worker"));
  }
  EXPECT_EQ(workers.size(), 2U) << "it was claimed again by the worker whose disk is full";
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// Four full disks: the job waits for somebody who makes room, with what it has.
TEST(FullDiskTest, AJobThatMeetsFourFullDisksIsPausedWithItsCheckpoint) {
  ChaosPlatform platform({.agents = 4});
  const std::string id = platform.submit("enospc-10", 20);
  ASSERT_TRUE(platform.becomes(id, "PAUSED"));
  const auto job = platform.record(id);
  EXPECT_EQ(job.at("pause_reason"), "DISK_FULL");
  EXPECT_EQ(job.at("ckpt_step"), "5");
  EXPECT_EQ(spent(platform, id), (Budget{.fulls = 4}));
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
