// The network between all processes is gone: no reset, no refusal, only silence. Redis is reached
// over a socket in the file system, so the scheduler sees leases run out.
#include <gmock/gmock.h>

#include <string>

#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
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

}  // namespace
}  // namespace dex
