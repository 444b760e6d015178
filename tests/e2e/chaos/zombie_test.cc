// P2: a job may start more than once, and however late an old attempt wakes up, what is published
// is the last owner's.
#include <gmock/gmock.h>

#include <csignal>

#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using support::Program;
using testing::IsEmpty;

// Its job stops at a gate, so that the test says which attempt ends first.
constexpr const char* kGated = "ms-20.gate-10";

class ZombieTest : public testing::Test {
 protected:
  // A job at its gate in attempt 1; the number of the agent that holds it.
  static int start(ChaosPlatform& platform, std::string& id) {
    id = platform.submit(kGated, 20);
    EXPECT_TRUE(platform.reaches(id, 10));
    return ChaosPlatform::agent_of(platform.record(id)["worker"]);
  }
  // Somebody else takes the job and ends it.
  static void end_elsewhere(ChaosPlatform& platform, const std::string& id) {
    ASSERT_TRUE(eventually([&] { return platform.number(id, "attempt") == 2; }));
    platform.open_gate(id, 2);
    ASSERT_TRUE(platform.becomes(id, "SUCCEEDED"));
  }
  static int published(ChaosPlatform& platform, const std::string& id) {
    int times = 0;
    for (const auto& step : platform.transitions(id)) times += step.at("state") == "SUCCEEDED";
    return times;
  }
};

TEST_F(ZombieTest, AFrozenAgentWakesUpToALostLeaseAndWorksOn) {
  ChaosPlatform platform({.agents = 2, .times = ChaosPlatform::kNoSettling});
  std::string id;
  Program& zombie = platform.agent(start(platform, id));
  zombie.signal(SIGSTOP);
  end_elsewhere(platform, id);
  const auto before = platform.record(id);

  platform.open_gate(id, 1);  // nobody froze its trainer: that ends with a result of its own
  zombie.signal(SIGCONT);
  // Both agents work again: two jobs that wait for each other's place would never meet.
  const std::string one = platform.submit("gate-1", 3), two = platform.submit("gate-1", 3);
  EXPECT_TRUE(platform.becomes(one, "RUNNING"));
  EXPECT_TRUE(platform.becomes(two, "RUNNING"));
  EXPECT_EQ(platform.record(id), before) << "the zombie changed a finished job";
  EXPECT_EQ(published(platform, id), 1);
  platform.open_gate(one);
  platform.open_gate(two);
  EXPECT_TRUE(platform.becomes(one, "SUCCEEDED"));
  EXPECT_TRUE(platform.becomes(two, "SUCCEEDED"));
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// The agent never stopped; its words did not arrive, and then all of them do.
TEST_F(ZombieTest, AFinishThatComesLateIsRefusedAndCounted) {
  ChaosPlatform platform({.agents = 2, .times = ChaosPlatform::kNoSettling, .proxies = true});
  std::string id;
  const int zombie = start(platform, id);
  platform.agent_link(zombie).plug();
  end_elsewhere(platform, id);
  const auto before = platform.record(id);

  platform.open_gate(id, 1);
  ASSERT_TRUE(eventually([&] {
    return platform.agent(zombie).log().find("OUTCOME_SUCCESS") != std::string::npos;
  })) << "its trainer ended, and its Finish is on the way";
  platform.agent_link(zombie).pass();
  EXPECT_TRUE(
      eventually([&] { return platform.scheduler().metric("dex_stale_finish_total") == 1; }));
  support::figure("P2", "stale_finishes", platform.scheduler().metric("dex_stale_finish_total"));
  EXPECT_EQ(platform.record(id), before);
  EXPECT_EQ(published(platform, id), 1);
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
