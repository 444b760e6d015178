// P19: who serves outlives who plans. P20: an engine that dies takes nothing along but the requests
// that it was answering. The real engine and trainer, on a tiny model.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "tests/e2e/chaos/calls.h"
#include "tests/e2e/chaos/heartbeat_gaps.h"
#include "tests/e2e/chaos/streams.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using support::slack;
using testing::AnyOf;
using testing::IsEmpty;

using InferenceStub = v1::InferenceService::Stub;

class ServingTest : public testing::Test {
 protected:
  ServingTest()
      : platform_({.trainer = support::real_trainer(), .engine = support::real_engine()}),
        inference_(v1::InferenceService::NewStub(rpc::channel(platform_.grpc()))) {}

  std::string start_job(uint32_t steps) {
    const auto job =
        platform_.api().create_job(support::real_job(platform_, steps, /*checkpoint_every=*/100));
    EXPECT_TRUE(job.ok()) << job.status().to_string();
    return job.ok() ? job->id() : "";
  }
  // A job from its start to its adapter's id.
  std::string train() {
    const std::string id = start_job(6);
    EXPECT_TRUE(platform_.becomes(id, "SUCCEEDED", 240'000)) << platform_.record(id)["why"];
    return platform_.record(id)["adapter"];
  }
  base::Status answers(const std::string& model) {
    return support::ask(*inference_, &InferenceStub::Generate, support::generation(model, 2),
                        60'000)
        .status();
  }
  // From now until the model answers, in s.
  double until_it_answers(const std::string& model, int64_t limit_ms = 120'000) {
    const base::SystemClock clock;
    const int64_t began_ms = clock.steady_ms();
    EXPECT_TRUE(eventually([&] { return answers(model).ok(); }, limit_ms));
    return clock.seconds_since(began_ms);
  }
  std::vector<pid_t> engines() { return platform_.agent().children("dex-engine"); }

  ChaosPlatform platform_;
  std::unique_ptr<InferenceStub> inference_;
};

TEST_F(ServingTest, InferenceOutlivesSchedulerAndRedis) {
  const std::string adapter = train();
  ASSERT_TRUE(answers(adapter).ok());
  const auto engines_before = engines();
  ASSERT_EQ(engines_before.size(), 1U);
  support::SteadyStreams streams(platform_.grpc(), {support::kTinyModel, adapter});
  ASSERT_TRUE(streams.go_on());

  platform_.scheduler().kill();
  platform_.redis().kill();
  support::expect_refused_submit(platform_);
  support::pass_time(support::long_form() ? 600'000 : 9'000);
  EXPECT_TRUE(streams.go_on()) << "nobody is answered during the outage";
  platform_.redis().start();
  platform_.scheduler().start();
  ASSERT_TRUE(platform_.ready());
  // The settle window is over without a route lost, and a new adapter becomes visible.
  ASSERT_TRUE(platform_.settled());
  const std::string newer = train();
  const double visible_s = until_it_answers(newer);
  EXPECT_LT(visible_s, slack() * 5.0);
  support::figure("P19", "new_adapter_visible_s", visible_s);
  EXPECT_THAT(streams.finish(), IsEmpty());
  support::figure("P19", "streams_answered", streams.whole());
  EXPECT_EQ(engines(), engines_before) << "the engine was started again";
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

TEST_F(ServingTest, ADeadEngineTakesOnlyItsRequestsAlong) {
  const std::string adapter = train();
  const std::string training = start_job(100'000);
  ASSERT_TRUE(platform_.reaches(training, 1, 240'000));
  const base::SystemClock clock;
  double slowest_end_s = 0, slowest_return_s = 0;
  support::HeartbeatGaps gaps(platform_, platform_.agent().name());
  const int rounds = support::long_form() ? 20 : 1;
  for (int round = 0; round < rounds; ++round) {
    support::OpenStreams streams(platform_.grpc(), adapter, 32);
    ASSERT_TRUE(streams.open());
    const auto engine = engines();
    ASSERT_EQ(engine.size(), 1U);
    // In the long form every other engine is asked to end, and has a word of its own for its
    // requests.
    const bool asked = round % 2 == 1;
    ASSERT_EQ(::kill(engine.front(), asked ? SIGTERM : SIGKILL), 0);
    const int64_t killed_ms = clock.steady_ms();
    ASSERT_TRUE(eventually([&] { return engines() != engine; }));
    until_it_answers(adapter, 240'000);
    const double back_s = clock.seconds_since(killed_ms);
    // Its back-off doubles with every death, so only the first returns are promised to be quick.
    if (round < 2) slowest_return_s = std::max(slowest_return_s, back_s);
    for (const auto& end : streams.ends()) {
      EXPECT_EQ(end.status.code(), base::Code::kUnavailable) << end.status.to_string();
      if (!asked) EXPECT_EQ(end.status.reason(), "ENGINE_LOST");
      if (asked) EXPECT_THAT(end.status.reason(), AnyOf("ENGINE_LOST", "SERVER_DRAINING"));
      slowest_end_s = std::max(slowest_end_s, static_cast<double>(end.at_ms - killed_ms) / 1000);
    }
  }
  support::figure("P20", "requests_failed_max_s", slowest_end_s);
  support::figure("P20", "engine_back_max_s", slowest_return_s);
  EXPECT_LT(slowest_end_s, slack() * 1.0);
  EXPECT_LT(slowest_return_s, slack() * 5.0);
  const double gap_s = gaps.finish();
  support::figure("P20", "heartbeat_gap_max_s", gap_s);
  const double beat_s = static_cast<double>(ChaosPlatform::Options().beat_ms) / 1000;
  EXPECT_LT(gap_s, slack() * 2 * beat_s);
  EXPECT_EQ(platform_.number(training, "attempt"), 1) << "the job beside it lost its lease";
  EXPECT_EQ(platform_.scheduler().metric("dex_lease_lost_total"), 0);
  EXPECT_TRUE(platform_.api().cancel_job(training).ok());
  EXPECT_TRUE(platform_.becomes(training, "CANCELLED"));
  EXPECT_THAT(platform_.wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
