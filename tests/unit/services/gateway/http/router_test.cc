#include "services/gateway/http/router.h"

#include <gmock/gmock.h>

#include "services/gateway/http/target.h"

namespace dex::gateway::http {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    const auto none = [](const ExchangePtr&) {};
    router_.add("GET", "/v1/files/{id}", none);
    router_.add("DELETE", "/v1/files/{id}", none);
    router_.add("GET", "/v1/files/special", none);
    router_.add("GET", "/v1/files/{id}/content", none);
    router_.add("POST", "/v1/files", none);
    router_.add("GET", "/pages/{rest...}", none);
  }
  Router::Match find(const std::string& method, const std::string& path) {
    return router_.find(method, parse_target(path).value().segments);
  }
  std::string pattern(const std::string& method, const std::string& path) {
    const auto match = find(method, path);
    return match.route == nullptr ? "-" : match.route->pattern;
  }

  Router router_;
};

TEST_F(RouterTest, LiteralsWinOverParametersAndThoseOverTails) {
  EXPECT_EQ(pattern("GET", "/v1/files/file-1"), "/v1/files/{id}");
  EXPECT_EQ(pattern("GET", "/v1/files/special"), "/v1/files/special");
  EXPECT_EQ(pattern("GET", "/v1/files/special/content"), "/v1/files/{id}/content");
  EXPECT_EQ(pattern("GET", "/pages/a/b"), "/pages/{rest...}");
  EXPECT_EQ(find("GET", "/pages/a/b").parameters.at("rest"), "a/b");
  EXPECT_EQ(find("GET", "/v1/files/a%2Fb").parameters.at("id"), "a/b");
}

TEST_F(RouterTest, WhatIsNotThereIsNamed) {
  for (const char* path : {"/", "/v1", "/v1/files/", "/v1/files/a/b", "/V1/files/a", "/pages"}) {
    const auto match = find("GET", path);
    EXPECT_EQ(match.route, nullptr) << path;
    EXPECT_EQ(match.refusal.reason(), "ROUTE_NOT_FOUND") << path;
  }
  EXPECT_THAT(find("GET", "/v2/x").refusal.message(), HasSubstr("GET /v2/x"));
}

TEST_F(RouterTest, AWrongMethodIsToldTheRightOnes) {
  const auto match = find("PATCH", "/v1/files/a");
  EXPECT_EQ(match.route, nullptr);
  EXPECT_EQ(match.refusal.reason(), "METHOD_NOT_ALLOWED");
  EXPECT_EQ(match.allow, "GET, HEAD, DELETE, OPTIONS");
  EXPECT_EQ(find("GET", "/v1/files").allow, "POST, OPTIONS");
  EXPECT_EQ(pattern("HEAD", "/v1/files/a"), "/v1/files/{id}");
}

TEST_F(RouterTest, TheFallbackTakesGetsAlone) {
  router_.set_fallback("/{page}", [](const ExchangePtr&) {});
  EXPECT_EQ(pattern("GET", "/jobs/1"), "/{page}");
  EXPECT_EQ(find("POST", "/jobs/1").refusal.reason(), "ROUTE_NOT_FOUND");
  EXPECT_THAT(router_.methods({"jobs"}), ElementsAre("GET", "HEAD", "OPTIONS"));
}

}  // namespace
}  // namespace dex::gateway::http
