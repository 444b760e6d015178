#pragma once

#include <gmock/gmock.h>

#include <memory>
#include <string>

#include "services/gateway/gateway.h"
#include "tests/integration/gateway/fakes.h"
#include "tests/support/http_client.h"

namespace dex::gateway {

// A gateway before a fake scheduler, and a client's channel to it.
class GatewayTest : public ::testing::Test {
 protected:
  void SetUp() override { start(std::chrono::milliseconds(0)); }

  // Instead of the gateway that is there: one that waits so long for a worker. Returns once it has
  // routes.
  void start(std::chrono::milliseconds route_patience) {
    Gateway::Options options;
    options.route_patience = route_patience;
    options.scheduler = scheduler_->address();
    options.listen = options.http_listen = options.metrics_listen = "127.0.0.1:0";
    gateway_.reset();
    auto started = Gateway::start(options);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    gateway_ = std::move(started).value();
    channel_ = rpc::channel(gateway_->grpc_address());
    files_ = v1::FileService::NewStub(channel_);
    inference_ = v1::InferenceService::NewStub(channel_);
    for (int i = 0; i < 20'000 && !http("/readyz").starts_with("HTTP/1.1 200"); ++i) {
    }
  }

  // Sets the routes and waits until the gateway answers /readyz and works with that revision: the
  // base "ready-<n>" of the snapshot resolves (and has no worker).
  void route(internal::v1::RouteSnapshot routes) {
    const std::string marker = "ready-" + std::to_string(++marker_);
    routes.add_bases(marker);
    scheduler_->set_routes(std::move(routes));
    for (int i = 0; i < 20'000; ++i) {
      if (generate(marker).status().reason() == "NO_WORKER") return;
    }
    FAIL() << "the gateway did not take the routes over";
  }

  base::Result<v1::GenerateResponse> generate(const std::string& model,
                                              const std::string& adapter = "") {
    grpc::ClientContext context;
    limit(context);
    v1::GenerateRequest request;
    request.set_model(model);
    if (!adapter.empty()) request.set_adapter(adapter);
    request.set_prompt("x");
    v1::GenerateResponse reply;
    const auto status = inference_->Generate(&context, request, &reply);
    if (!status.ok()) return rpc::from_grpc(status);
    return reply;
  }

  static void limit(grpc::ClientContext& context) {
    rpc::set_timeout(context, std::chrono::seconds(20));
  }
  std::string http(const std::string& path) {
    return support::http_get(support::port_of(gateway_->http_address()), path);
  }

  std::unique_ptr<FakeScheduler> scheduler_ = std::make_unique<FakeScheduler>();
  std::unique_ptr<Gateway> gateway_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::FileService::Stub> files_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
  int marker_ = 0;
};

}  // namespace dex::gateway
