// Tokens of generations, as a gateway counts and reports them (api.md §2, GetUsage).
#include <gmock/gmock.h>

#include <set>
#include <string>

#include "tests/integration/gateway/gateway_fixture.h"
#include "tests/support/eventually.h"

namespace dex::gateway {
namespace {

using support::eventually;

class TokenCountTest : public GatewayTest {
 protected:
  void SetUp() override {
    scheduler_->set_routes(routes_to({&worker_}));
    Gateway::Options options;
    options.scheduler = scheduler_->address();
    options.listen = options.http_listen = options.metrics_listen = "127.0.0.1:0";
    options.use_period = std::chrono::milliseconds(10);
    auto started = Gateway::start(options);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    gateway_ = std::move(started).value();
    channel_ = rpc::channel(gateway_->grpc_address());
    inference_ = v1::InferenceService::NewStub(channel_);
    ASSERT_TRUE(eventually([this] { return http("/readyz").starts_with("HTTP/1.1 200"); }));
    worker_.generate = [](rpc::Call&, const v1::GenerateRequest&) {
      v1::GenerateResponse reply;
      reply.mutable_usage()->set_prompt_tokens(7);
      reply.mutable_usage()->set_completion_tokens(3);
      return base::Result<v1::GenerateResponse>(std::move(reply));
    };
  }
  // A stream to its end, or until the client leaves after so many messages.
  grpc::Status stream(int messages = 1000) {
    grpc::ClientContext context;
    limit(context);
    v1::GenerateRequest request;
    request.set_model("smol");
    request.set_prompt("x");
    const auto reader = inference_->GenerateStream(&context, request);
    v1::GenerateStreamResponse message;
    while (messages-- > 0 && reader->Read(&message)) {
    }
    if (messages < 0) context.TryCancel();
    return reader->Finish();
  }
  // Over all reports, each counted once as the scheduler does.
  internal::v1::ReportUseRequest::Generated sum() {
    internal::v1::ReportUseRequest::Generated all;
    std::set<std::string> seen;
    for (const auto& report : scheduler_->reports()) {
      if (!seen.insert(report.report_id()).second) continue;
      for (const auto& row : report.generated()) {
        EXPECT_EQ(row.tenant(), "default");
        all.set_prompt_tokens(all.prompt_tokens() + row.prompt_tokens());
        all.set_generated_tokens(all.generated_tokens() + row.generated_tokens());
        all.set_generations(all.generations() + row.generations());
      }
    }
    return all;
  }

  FakeWorker worker_{"one"};
};

TEST_F(TokenCountTest, AGenerationThatEndsIsReportedWithItsTokens) {
  worker_.stream = [](FakeWorker::Stream out) {
    out->push(started("gen-1"));
    out->push(delta("a"));
    auto last = finished();
    last.mutable_finish()->mutable_usage()->set_prompt_tokens(100);
    last.mutable_finish()->mutable_usage()->set_completion_tokens(20);
    out->push(last);
    out->finish({});
  };
  ASSERT_TRUE(generate("smol").ok());
  ASSERT_TRUE(stream().ok());
  EXPECT_TRUE(eventually([this] { return sum().generations() == 2; }));
  EXPECT_EQ(sum().prompt_tokens(), 107);
  EXPECT_EQ(sum().generated_tokens(), 23);
}

TEST_F(TokenCountTest, WhatFailsOrIsLeftCountsNothing) {
  worker_.stream = [](FakeWorker::Stream out) {
    out->push(started("gen-1"));
    out->push(delta("a"));
    out->finish(base::unavailable("ENGINE_LOST", "gone"));
  };
  EXPECT_FALSE(stream().ok());
  EXPECT_FALSE(generate("unknown").ok());
  ASSERT_TRUE(generate("smol").ok());  // behind them, so that their reports would have come
  EXPECT_TRUE(eventually([this] { return sum().generations() >= 1; }));
  EXPECT_EQ(sum().generations(), 1);
}

TEST_F(TokenCountTest, AReportThatFailsComesAgainAsItWas) {
  scheduler_->answer_reports(base::unavailable("STORE_UNAVAILABLE", "away"));
  ASSERT_TRUE(generate("smol").ok());
  ASSERT_TRUE(eventually([this] { return scheduler_->reports().size() >= 2; }));
  ASSERT_TRUE(generate("smol").ok());
  scheduler_->answer_reports({});
  EXPECT_TRUE(eventually([this] { return sum().generations() == 2; }));
  const auto reports = scheduler_->reports();
  EXPECT_EQ(reports[0].report_id(), reports[1].report_id());
  EXPECT_EQ(reports[0].SerializeAsString(), reports[1].SerializeAsString());
}

}  // namespace
}  // namespace dex::gateway
