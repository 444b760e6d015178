#include <nlohmann/json.hpp>

#include "tests/integration/gateway/gateway_fixture.h"
#include "tests/support/eventually.h"
#include "tests/support/promtool.h"

namespace dex::gateway {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string body(const std::string& answer) {
  const auto end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

class HttpTest : public GatewayTest {};

TEST_F(HttpTest, IsReadyOnceRoutesHaveComeAndStaysSo) {
  route(routes_to({}));
  EXPECT_THAT(http("/readyz"), StartsWith("HTTP/1.1 200 "));
  scheduler_->kill();
  EXPECT_THAT(http("/readyz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(http("/healthz"), StartsWith("HTTP/1.1 200 "));
  gateway_->stop(std::chrono::milliseconds(100));
  EXPECT_THAT(http("/readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(http("/readyz"), HasSubstr("stopping"));
}

TEST(HttpStartTest, IsNotReadyBeforeTheFirstRoutes) {
  Gateway::Options options;
  options.scheduler = "unix:/nowhere/dex";
  options.listen = options.http_listen = options.metrics_listen = "127.0.0.1:0";
  const auto gateway = Gateway::start(options);
  ASSERT_TRUE(gateway.ok());
  const int port = support::port_of(gateway.value()->http_address());
  EXPECT_THAT(support::http_get(port, "/readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(support::http_get(port, "/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpTest, RoutesThatDoNotExistAnswerInOpenAisShape) {
  const auto answer = http("/v1/nothing");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(answer, HasSubstr("x-request-id: "));
  EXPECT_EQ(nlohmann::json::parse(body(answer)).at("error").at("code"), "route_not_found");
}

TEST_F(HttpTest, TooLargeRequestsAnswerInOpenAisShape) {
  support::RawConnection large(support::port_of(gateway_->http_address()));
  large.send(
      "POST /rpc/dex.v1.FileService/GetFile HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Length: 99999999\r\n\r\n");
  const auto answer = large.read_all();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 413 "));
  EXPECT_EQ(nlohmann::json::parse(body(answer)).at("error").at("code"), "too_large");
}

TEST_F(HttpTest, MetricsAreWhatWasPromisedAndWellFormed) {
  FakeWorker worker("w");
  route(routes_to({&worker}));
  ASSERT_TRUE(generate("smol").ok());
  ASSERT_FALSE(generate("unknown").ok());
  const auto exposition =
      body(support::http_get(support::port_of(gateway_->metrics_address()), "/metrics"));
  for (const char* line :
       {"dex_build_info{", "dex_gateway_snapshot_timestamp_seconds 1",
        "dex_gateway_requests_total{code=\"OK\",method=\"dex.v1.InferenceService/Generate\"} 1",
        "dex_gateway_rejected_total{reason=\"MODEL_NOT_FOUND\"}",
        "dex_rpc_duration_seconds_bucket{"}) {
    EXPECT_THAT(exposition, HasSubstr(line));
  }
  EXPECT_EQ(support::promtool_complaints(exposition), "");
}

// Routes that nobody changes stay right, and an alert on their age must not take them for stale.
TEST_F(HttpTest, TheAgeOfTheRoutesGrowsOnlyWhileTheSchedulerIsAway) {
  route(routes_to({}));
  const auto known = [this] {
    const std::string name = "\ndex_gateway_snapshot_timestamp_seconds ";
    const auto page =
        body(support::http_get(support::port_of(gateway_->metrics_address()), "/metrics"));
    return std::stod(page.substr(page.find(name) + name.size()));
  };
  const double first = known();
  EXPECT_TRUE(support::eventually([&] { return known() > first; })) << "nothing has changed";
  scheduler_->kill();
  double last = 0;
  EXPECT_TRUE(support::eventually([&] {
    const double before = last;
    last = known();
    return last == before;
  }));
  EXPECT_EQ(known(), last);
}

}  // namespace
}  // namespace dex::gateway
