#include "services/monitor/monitor_server.h"

#include <gmock/gmock.h>

#include "tests/support/http_client.h"

namespace dex::monitor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class MonitorServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = start_monitor_server("127.0.0.1:0", registry_, [this] { return readiness_; });
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    server_ = std::move(started).value();
  }
  std::string get(const std::string& path, const std::string& method = "GET") {
    return support::http_get(server_->port(), path, method);
  }

  Registry registry_{"test", "0", "0"};
  base::Status readiness_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(MonitorServerTest, SaysThatItLives) {
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MonitorServerTest, SaysWhyItIsNotReady) {
  EXPECT_THAT(get("/readyz"), StartsWith("HTTP/1.1 200 "));
  readiness_ = base::unavailable("STORE_UNAVAILABLE", "Redis does not answer");
  EXPECT_THAT(get("/readyz"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(get("/readyz"), HasSubstr("Redis does not answer"));
  EXPECT_THAT(get("/healthz"), StartsWith("HTTP/1.1 200 "));  // alive all the same
}

TEST_F(MonitorServerTest, ServesMetrics) {
  EXPECT_THAT(get("/metrics"), HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(get("/metrics?x=1"), HasSubstr("dex_build_info"));
  EXPECT_THAT(get("/metrics", "HEAD"), ::testing::Not(HasSubstr("dex_build_info")));
}

TEST_F(MonitorServerTest, RefusesOtherPathsAndMethods) {
  EXPECT_THAT(get("/"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(get("/metrics/../x"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(get("/metrics", "POST"), StartsWith("HTTP/1.1 405 "));
}

}  // namespace
}  // namespace dex::monitor
