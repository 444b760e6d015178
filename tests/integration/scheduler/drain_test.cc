// A scheduler that stops says so first of all, at both of its doors and to whoever asks whether it
// is ready.
#include <chrono>
#include <thread>

#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/health_watch.h"

namespace dex::server {
namespace {

using support::HealthWatch;

class SchedulerDrainTest : public SchedulerTest {};

TEST_F(SchedulerDrainTest, BothDoorsAndReadyzSayItBeforeAnythingEnds) {
  // As long as they are open it cannot end.
  HealthWatch gateways(scheduler_->grpc_address()), workers(scheduler_->worker_address());
  ASSERT_TRUE(gateways.says(HealthWatch::Health::kServing));
  ASSERT_TRUE(workers.says(HealthWatch::Health::kServing));
  EXPECT_NE(http("/readyz").find("200"), std::string::npos);

  const std::jthread stopping([this] { scheduler_->stop(std::chrono::seconds(20)); });
  EXPECT_TRUE(gateways.says(HealthWatch::Health::kNotServing));
  EXPECT_TRUE(workers.says(HealthWatch::Health::kNotServing));
  EXPECT_TRUE(support::eventually([this] { return !scheduler_->ready().ok(); }));
  EXPECT_EQ(scheduler_->ready().reason(), "SERVER_DRAINING");
  EXPECT_NE(http("/readyz").find("503"), std::string::npos);
  EXPECT_NE(http("/healthz").find("200"), std::string::npos) << "alive all the same";
  gateways.end();
  workers.end();
}

}  // namespace
}  // namespace dex::server
