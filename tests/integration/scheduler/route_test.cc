// WatchRoutes: what gateways route by.
#include "tests/integration/scheduler/scheduler_fixture.h"

namespace dex::server {
namespace {

class RouteTest : public SchedulerTest {};

TEST_F(RouteTest, SnapshotThenChanges) {
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(20));
  const auto reader = routes_->WatchRoutes(&context, iv1::WatchRoutesRequest{});
  iv1::RouteSnapshot snapshot;
  ASSERT_TRUE(reader->Read(&snapshot));
  EXPECT_EQ(snapshot.routes_size(), 0);
  ASSERT_EQ(snapshot.bases_size(), 1);
  EXPECT_EQ(snapshot.bases(0), "small-model");

  const std::string id = train_adapter();
  while (snapshot.adapters_size() == 0) ASSERT_TRUE(reader->Read(&snapshot));
  EXPECT_EQ(snapshot.adapters(0).id(), id);
  EXPECT_EQ(snapshot.adapters(0).base(), "small-model");
  EXPECT_EQ(snapshot.adapters(0).tenant(), "default");
  EXPECT_TRUE(std::filesystem::exists(directory_ / "data" / snapshot.adapters(0).path()));

  iv1::AdapterStatus held;
  held.set_id(id);
  held.set_content_sha256(snapshot.adapters(0).content_sha256());
  held.set_state(v1::Replica::STATE_LOADED);
  report_engine("w1", {held});
  while (snapshot.routes_size() == 0) ASSERT_TRUE(reader->Read(&snapshot));
  EXPECT_EQ(snapshot.routes(0).worker(), "w1");
  EXPECT_EQ(snapshot.routes(0).inference_address(), "127.0.0.1:1");
  EXPECT_EQ(snapshot.routes(0).adapters(0), id);

  iv1::DrainRequest drain;
  drain.set_worker_id("w1");
  ASSERT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Drain, drain).ok());
  while (snapshot.routes_size() != 0) ASSERT_TRUE(reader->Read(&snapshot));
  context.TryCancel();
}

// Every change sends all routes of all tenants to all gateways.
TEST_F(RouteTest, ABusyEngineIsNoNewsAtEachBeat) {
  enlist();
  const auto revision_at = [&](uint32_t running, uint32_t waiting) {
    iv1::HeartbeatRequest request;
    request.set_worker_id("w1");
    auto& engine = *request.add_engines();
    engine.set_base("small-model");
    engine.set_state(iv1::EngineStatus::STATE_SERVING);
    engine.set_running(running);
    engine.set_waiting(waiting);
    engine.set_kv_usage_ratio(0.01 * running);
    EXPECT_TRUE(call(*workers_, &iv1::WorkerService::Stub::Heartbeat, request).ok());
    return redis_.call({"HGET", "dex:{s0}:cfg", "routes_rev"}).as_int();
  };
  const int64_t idle = revision_at(0, 0);
  for (const uint32_t running : {1U, 5U, 3U, 7U, 0U}) EXPECT_EQ(revision_at(running, 0), idle);
  const int64_t busy = revision_at(17, 3);
  EXPECT_GT(busy, idle);
  for (const uint32_t running : {16U, 24U, 31U}) EXPECT_EQ(revision_at(running, 0), busy);
  EXPECT_EQ(revision_at(10, 12), busy) << "those that wait count like those that run";
  EXPECT_GT(revision_at(32, 8), busy);

  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(20));
  const auto reader = routes_->WatchRoutes(&context, iv1::WatchRoutesRequest{});
  iv1::RouteSnapshot snapshot;
  ASSERT_TRUE(reader->Read(&snapshot));
  ASSERT_EQ(snapshot.routes_size(), 1);
  EXPECT_EQ(snapshot.routes(0).running() + snapshot.routes(0).waiting(), 32U);
  context.TryCancel();
}

}  // namespace
}  // namespace dex::server
