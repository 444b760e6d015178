// The network between processes is gone: no reset, no refusal, only silence. Between all of them,
// then between one agent and the rest. Redis is reached over a socket in the file system, so the
// scheduler sees leases run out.
#include <gmock/gmock.h>

#include <string>

#include "services/base/clock.h"
#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
#include "tests/support/far_network.h"
#include "tests/support/figures.h"
#include "tests/support/own_network.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using testing::IsEmpty;

class NetworkTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { support::enter_own_network(); }
  void TearDown() override { support::set_loopback(true); }
};

TEST_F(NetworkTest, AShortSilenceCostsNothingAndALongOneOnlyTheAttempt) {
  // One agent: no waiting claim takes the job in the silence.
  ChaosPlatform platform({.times = ChaosPlatform::kNoSettling});
  const std::string id = platform.submit("ms-20.gate-200", 220, /*every=*/10);
  ASSERT_TRUE(eventually([&] { return platform.number(id, "ckpt_step") >= 10; }));

  support::set_loopback(false);
  support::pass_time(700);
  support::set_loopback(true);
  ASSERT_TRUE(platform.reaches(id, platform.step(id) + 10));
  EXPECT_EQ(platform.number(id, "attempt"), 1);

  support::set_loopback(false);
  ASSERT_TRUE(platform.becomes(id, "READY"));
  const int64_t acknowledged = platform.number(id, "ckpt_step");
  support::set_loopback(true);
  ASSERT_TRUE(eventually([&] { return platform.number(id, "attempt") == 2; }));
  platform.open_gate(id);
  EXPECT_TRUE(platform.becomes(id, "SUCCEEDED"));
  ASSERT_TRUE(platform.ready());
  EXPECT_EQ(platform.last_event(id, "job_start").job_start().resumed_from_step(), acknowledged);
  EXPECT_EQ(platform.number(id, "attempt"), 2);
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// An agent in another network, whose cable is pulled. Everybody else is in touch all the time; its
// own trainer stays until the agent is told that the lease was lost.
class PulledCableTest : public NetworkTest {
 protected:
  PulledCableTest() : platform_(options()) {}

  ChaosPlatform::Options options() {
    return {.agents = 2, .times = ChaosPlatform::kNoSettling, .far = &far_};
  }
  // A job at work, with a checkpoint that the store knows, which will stop at a gate.
  std::string start() {
    const std::string id = platform_.submit("ms-20.gate-60", 80, /*every=*/10);
    EXPECT_TRUE(eventually([&] { return platform_.number(id, "ckpt_step") >= 10; }));
    return id;
  }
  bool is_far(const std::string& id) {
    return ChaosPlatform::agent_of(platform_.record(id)["worker"]) == 1;
  }
  // A beat of its agent arrives, now or soon.
  bool is_in_touch(const std::string& id) {
    const int64_t lease_ms = platform_.number(id, "lease_ms");
    return eventually([&] { return platform_.number(id, "lease_ms") > lease_ms; });
  }

  support::FarNetwork far_;
  ChaosPlatform platform_;
};

TEST_F(PulledCableTest, CostsTheFarAgentItsAttemptAndNobodyElseAnything) {
  // Each agent has one place, so each has one of them.
  const std::string one = start(), two = start();
  ASSERT_NE(is_far(one), is_far(two));
  const std::string &far = is_far(one) ? one : two, &near = is_far(one) ? two : one;

  far_.plug_cable(false);
  support::pass_time(700);
  far_.plug_cable(true);
  ASSERT_TRUE(is_in_touch(far)) << "after a short silence";
  EXPECT_EQ(platform_.number(far, "attempt"), 1);

  const base::SystemClock clock;
  const int64_t pulled_ms = clock.steady_ms();
  far_.plug_cable(false);
  ASSERT_TRUE(platform_.becomes(far, "READY"));
  const double ready_s = clock.seconds_since(pulled_ms);
  const int64_t acknowledged = platform_.number(far, "ckpt_step");
  EXPECT_TRUE(platform_.api().get_job(far).ok());
  EXPECT_TRUE(is_in_touch(near));
  EXPECT_EQ(platform_.agent(1).children("dex-toy-trainer").size(), 1U) << "nobody has told it";
  // A lease, a sweep and, at a tenth of the usual times, half a second.
  EXPECT_LT(ready_s, support::slack() * 4.0);
  support::figure("P3", "recovery_of_a_cut_worker_s", ready_s);

  far_.plug_cable(true);
  ASSERT_TRUE(eventually([&] { return platform_.number(far, "attempt") == 2; }));
  platform_.open_gate(far);
  platform_.open_gate(near);
  EXPECT_TRUE(platform_.becomes(far, "SUCCEEDED"));
  EXPECT_TRUE(platform_.becomes(near, "SUCCEEDED"));
  EXPECT_EQ(platform_.last_event(far, "job_start").job_start().resumed_from_step(), acknowledged);
  EXPECT_EQ(platform_.number(far, "crashes"), 1);
  EXPECT_EQ(platform_.number(near, "attempt"), 1);
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
