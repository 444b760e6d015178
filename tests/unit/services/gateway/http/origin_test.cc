#include "services/gateway/http/origin.h"

#include <gmock/gmock.h>

namespace dex::gateway::http {
namespace {

using ::testing::Contains;
using ::testing::Pair;

base::Status ask(const OriginPolicy& policy, const Headers& headers, bool changes = true) {
  Request request;
  request.headers = headers;
  return check_origin(policy, request, changes);
}

TEST(OriginTest, WithoutAuthenticationOnlyThisMachinesNamesAndPages) {
  const OriginPolicy off;
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:8080", "127.0.0.2", "[::1]:80",
                           "[::1]", "LOCALHOST:1"}) {
    EXPECT_TRUE(ask(off, {{"host", host}}).ok()) << host;
  }
  for (const char* host : {"evil.example:8080", "localhost.evil.example", "10.0.0.1", "127.0.0.1.x",
                           "unix", "unix:8080", "unix-abstract:1"}) {
    EXPECT_EQ(ask(off, {{"host", host}}, false).reason(), "ORIGIN_NOT_ALLOWED") << host;
  }
  EXPECT_TRUE(ask(off, {{"host", "localhost:1"}, {"origin", "http://localhost:1"}}).ok());
  for (const char* origin :
       {"https://evil.example", "null", "http://localhost:2", "http://127.0.0.1:1"}) {
    const Headers headers = {{"host", "localhost:1"}, {"origin", origin}};
    EXPECT_EQ(ask(off, headers).reason(), "ORIGIN_NOT_ALLOWED") << origin;
    EXPECT_TRUE(ask(off, headers, /*changes=*/false).ok()) << origin;
  }
  EXPECT_FALSE(ask(off, {{"host", "localhost"}, {"sec-fetch-site", "cross-site"}}).ok());
  EXPECT_TRUE(ask(off, {{"host", "localhost"}, {"sec-fetch-site", "same-origin"}}).ok());
}

TEST(OriginTest, AListOpensAndAuthenticationNeedsNone) {
  OriginPolicy policy;
  policy.cors_origins = {"https://app.example.com"};
  const Headers headers = {{"host", "localhost"}, {"origin", "https://app.example.com"}};
  EXPECT_TRUE(ask(policy, headers).ok());
  OriginPolicy keys;
  keys.authenticated = true;
  EXPECT_TRUE(ask(keys, {{"host", "dex.example"}, {"origin", "https://other.example"}}).ok());
}

TEST(OriginTest, CorsIsOffAndForListedOriginsOnly) {
  Request request;
  request.headers = {{"origin", "https://app.example.com"},
                     {"access-control-request-method", "POST"}};
  EXPECT_TRUE(cors_headers({}, request).empty());
  EXPECT_EQ(options_reply({}, request, {"GET"}).headers.size(), 1U);
  OriginPolicy policy;
  policy.cors_origins = {"https://app.example.com"};
  EXPECT_THAT(cors_headers(policy, request),
              Contains(Pair("Access-Control-Allow-Origin", "https://app.example.com")));
  const Reply preflight = options_reply(policy, request, {"GET", "POST"});
  EXPECT_EQ(preflight.status, 204);
  EXPECT_THAT(preflight.headers, Contains(Pair("Access-Control-Allow-Methods", "GET, POST")));
  EXPECT_THAT(preflight.headers,
              Contains(Pair("Access-Control-Allow-Headers",
                            "authorization, content-type, idempotency-key, last-event-id")));
  request.headers[0].second = "https://evil.example";
  EXPECT_EQ(cors_headers(policy, request).size(), 1U);  // Vary
}

TEST(OriginTest, RefusesFlagsThatAreNoOrigin) {
  EXPECT_TRUE(check_cors_origins({"https://a.example", "http://localhost:3000"}).ok());
  for (const char* bad :
       {"*", "a.example", "https://a.example/", "https://A.example", "https://"}) {
    EXPECT_FALSE(check_cors_origins({bad}).ok()) << bad;
  }
}

}  // namespace
}  // namespace dex::gateway::http
