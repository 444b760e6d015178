// Nothing new is acknowledged on a store that would forget it.
#include "tests/integration/scheduler_surface/surface_fixture.h"
#include "tests/support/eventually.h"

namespace dex::server {
namespace {

using support::eventually;

class StoreHealthTest : public SurfaceTest {
 protected:
  // The same platform on a Redis that would forget the last second.
  void make_forgetful() {
    redis_.call({"CONFIG", "SET", "appendfsync", "everysec"});
    scheduler_.reset();
    auto started = Scheduler::start(options());  // not by main: it is not refused
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    scheduler_ = std::move(started).value();
    connect();
    ASSERT_TRUE(eventually([&] { return scheduler_->ready().reason() == "STORE_NOT_DURABLE"; }));
  }
  void make_durable() {
    redis_.call({"CONFIG", "SET", "appendfsync", "always"});
    ASSERT_TRUE(eventually([&] { return scheduler_->ready().ok(); }));
  }
};

TEST_F(StoreHealthTest, AStoreThatWouldForgetTakesNoJob) {
  v1::CreateFineTuningJobRequest request;
  *request.mutable_spec() = spec(upload_good());
  request.set_request_id("before");
  ASSERT_TRUE(create(request).ok());

  ASSERT_NO_FATAL_FAILURE(make_forgetful());

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

  ASSERT_NO_FATAL_FAILURE(make_durable());
  EXPECT_TRUE(create(request, &replayed).ok());
  EXPECT_FALSE(replayed);
}

TEST_F(StoreHealthTest, ItTakesNeitherImportsNorExports) {
  v1::ExportAdapterRequest wanted;
  wanted.set_adapter(train_adapter());
  wanted.set_kind(v1::ExportAdapterRequest::KIND_FOLDED_SAFETENSORS);
  ASSERT_NO_FATAL_FAILURE(make_forgetful());

  const auto refused = call(*adapters_, &AdapterStub::ExportAdapter, wanted).status();
  EXPECT_EQ(refused.reason(), "STORE_UNAVAILABLE") << refused.to_string();
  EXPECT_TRUE(rpc::retryable(refused));
  grpc::ClientContext context;
  rpc::set_timeout(context, std::chrono::seconds(20));
  v1::Adapter adapter;
  const auto writer = adapters_->ImportAdapter(&context, &adapter);
  v1::ImportAdapterRequest first;
  first.mutable_header()->set_base_model("small-model");
  writer->Write(first);
  writer->WritesDone();
  EXPECT_EQ(rpc::from_grpc(writer->Finish()).reason(), "STORE_UNAVAILABLE")
      << "before it asks for the archive";
  EXPECT_TRUE(claim().has_none());

  ASSERT_NO_FATAL_FAILURE(make_durable());
  EXPECT_EQ(call(*adapters_, &AdapterStub::ExportAdapter, wanted, 2000).status().code(),
            base::Code::kDeadlineExceeded)
      << "it waits for a worker";
  EXPECT_EQ(claim("w1", 15'000).job().kind(), "adapter_export");
}

}  // namespace
}  // namespace dex::server
