// Nothing new is acknowledged on a store that would forget it.
#include "tests/integration/scheduler_surface/surface_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

using support::eventually;

class StoreHealthTest : public SurfaceTest {};

TEST_F(StoreHealthTest, AStoreThatWouldForgetTakesNoJob) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.set_request_id("before");
  ASSERT_TRUE(create(request).ok());

  redis_.call({"CONFIG", "SET", "appendfsync", "everysec"});
  scheduler_.reset();
  auto started = Scheduler::start(options());  // not by main: it is not refused
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  scheduler_ = std::move(started).value();
  connect();
  ASSERT_TRUE(eventually([&] { return scheduler_->ready().reason() == "STORE_NOT_DURABLE"; }));

  bool replayed = false;
  EXPECT_TRUE(create(request, &replayed).ok()) << "what it has acknowledged it may say again";
  EXPECT_TRUE(replayed);
  request.set_request_id("after");
  const auto status = create(request).status();
  EXPECT_EQ(status.code(), base::Code::kUnavailable);
  EXPECT_EQ(status.reason(), "STORE_UNAVAILABLE");
  EXPECT_NE(status.message().find("appendfsync"), std::string::npos) << status.message();
  EXPECT_TRUE(rpc::retryable(status));
  request.set_validate_only(true);
  EXPECT_TRUE(create(request).ok()) << "nothing is stored by that";
  request.set_validate_only(false);

  redis_.call({"CONFIG", "SET", "appendfsync", "always"});
  ASSERT_TRUE(eventually([&] { return scheduler_->ready().ok(); }));
  EXPECT_TRUE(create(request, &replayed).ok());
  EXPECT_FALSE(replayed);
}

}  // namespace
}  // namespace dex::server
