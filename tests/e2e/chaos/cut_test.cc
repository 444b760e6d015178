// The link between an agent and the schedulers breaks, plugs up or slows down. An answer that never
// comes is not "you lost": only the scheduler's word ends an attempt.
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using testing::IsEmpty;

TEST(CutLinkTest, AShortCutAndASlowLinkCostNothing) {
  ChaosPlatform::Options options{.proxies = true};
  options.times.lease_ms = 6'000;  // an agent's retry (2 s) does not shrink with the lease
  ChaosPlatform platform(options);
  const std::string id = platform.submit("ms-20", 600, /*every=*/25);
  ASSERT_TRUE(platform.reaches(id, 1));
  platform.agent_link(0).cut();
  platform.agent_link(0).pass();  // every connection is broken, none is refused for long
  ASSERT_TRUE(platform.reaches(id, platform.step(id) + 25));
  platform.agent_link(0).slow(150);
  ASSERT_TRUE(platform.reaches(id, platform.step(id) + 25));
  platform.gateway_link().slow(150);
  EXPECT_TRUE(platform.api().get_job(id).ok());
  EXPECT_TRUE(platform.becomes(id, "SUCCEEDED"));
  EXPECT_EQ(platform.number(id, "attempt"), 1);
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// Longer than a lease: the attempt goes on, since nobody told it otherwise, and ends once it is
// told. The next one goes on from what was acknowledged.
TEST(CutLinkTest, ALongCutEndsTheAttemptOnlyWhenItIsTold) {
  ChaosPlatform platform({.times = ChaosPlatform::kNoSettling, .proxies = true});
  const std::string id = platform.submit("ms-20.gate-60", 80, /*every=*/10);
  ASSERT_TRUE(eventually([&] { return platform.number(id, "ckpt_step") >= 10; }));
  platform.agent_link(0).plug();
  ASSERT_TRUE(platform.becomes(id, "READY"));
  const int64_t acknowledged = platform.number(id, "ckpt_step");
  ASSERT_EQ(platform.agent().children("dex-toy-trainer").size(), 1U) << "the attempt goes on";
  platform.agent_link(0).pass();
  ASSERT_TRUE(eventually([&] { return platform.number(id, "attempt") == 2; }));
  platform.open_gate(id);
  EXPECT_TRUE(platform.becomes(id, "SUCCEEDED"));
  EXPECT_EQ(platform.last_event(id, "job_start").job_start().resumed_from_step(), acknowledged);
  EXPECT_EQ(platform.number(id, "crashes"), 1);
  EXPECT_EQ(platform.number(id, "attempt"), 2);
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

// P6: the submit arrived, its answer did not. The same request again is the same job.
TEST(CutLinkTest, ASubmitWhoseAnswerIsLostMakesOneJob) {
  ChaosPlatform platform({.proxies = true});
  const auto request = platform.request("ms-1", 5);
  client::Client::Options options;
  options.server = platform.grpc();
  options.timeout = std::chrono::seconds(30);
  client::Client impatient(options);
  const auto jobs = [&] {
    return platform.redis().call({"ZCARD", "dex:{s0}:tjobs:default"}).integer;
  };
  // Slow enough that the test can break the connection between the submit and its answer.
  platform.gateway_link().slow(1'000);
  base::Result<v1::FineTuningJob> made = base::internal("not asked yet");
  {
    const std::jthread caller([&] { made = impatient.create_job(request); });
    EXPECT_TRUE(eventually([&] { return jobs() == 1; }));
    platform.gateway_link().cut();
    platform.gateway_link().slow(0);
    platform.gateway_link().pass();
  }
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  EXPECT_EQ(jobs(), 1);
  EXPECT_TRUE(platform.becomes(made->id(), "SUCCEEDED"));
  EXPECT_THAT(platform.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
