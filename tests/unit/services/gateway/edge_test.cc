#include "services/gateway/http/edge.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace dex::gateway {
namespace {

class EdgeTest : public ::testing::Test {
 protected:
  monitor::HttpResponse get(const std::string& path) { return handler_({"GET", path, "", ""}); }

  monitor::Registry registry_{"test", "0", "0"};
  monitor::HttpServer::Handler handler_ = edge_handler(registry_, [] { return base::Status(); });
};

TEST_F(EdgeTest, UnknownRoutesAnswerInOpenAisShape) {
  const auto response = get("/v1/nothing");
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.content_type, "application/json");
  const auto error = nlohmann::json::parse(response.body).at("error");
  EXPECT_EQ(error.at("code"), "ROUTE_NOT_FOUND");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_TRUE(error.at("param").is_null());
  EXPECT_THAT(error.at("message").get<std::string>(), ::testing::HasSubstr("GET /v1/nothing"));
}

TEST_F(EdgeTest, ABytePathStillGivesJson) {
  EXPECT_TRUE(nlohmann::json::accept(get("/\xff\xfe\"\n").body));
}

TEST_F(EdgeTest, EveryReplyHasARequestId) {
  for (const char* path : {"/healthz", "/readyz", "/metrics", "/other"}) {
    const auto response = get(path);
    ASSERT_FALSE(response.headers.empty()) << path;
    EXPECT_EQ(response.headers.back().first, "x-request-id");
  }
}

}  // namespace
}  // namespace dex::gateway
