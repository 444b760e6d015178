#include "services/gateway/http/http_error.h"

#include <gmock/gmock.h>

#include "services/rpc/status.h"

namespace dex::gateway::http {
namespace {

using nlohmann::json;

std::string header(const Reply& reply, const std::string& name) {
  for (const auto& [key, value] : reply.headers) {
    if (key == name) return value;
  }
  return "-";
}

TEST(HttpErrorTest, SpeaksOpenAisShapeWithOurFacts) {
  const Reply reply = error_reply(base::invalid_field("seed", "must be ≥ 0, got -1"), "req-1");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(header(reply, "x-should-retry"), "false");
  EXPECT_EQ(header(reply, "retry-after-ms"), "-");
  const json error = json::parse(reply.body).at("error");
  EXPECT_EQ(error.at("message"), "seed: must be ≥ 0, got -1");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_EQ(error.at("param"), "seed");
  EXPECT_EQ(error.at("code"), "invalid_field");
  EXPECT_EQ(error.at("category"), "USER");
  EXPECT_EQ(error.at("retryable"), false);
  EXPECT_EQ(error.at("request_id"), "req-1");
  EXPECT_EQ(error.at("details")[0].at("@type"), "type.googleapis.com/google.rpc.ErrorInfo");
}

TEST(HttpErrorTest, EachReasonHasItsStatusTypeAndCode) {
  const struct {
    base::Status status;
    int http;
    const char *type, *code, *retry;
  } rows[] = {
      {{base::Code::kUnauthenticated, "API_KEY_EXPIRED", "x"},
       401,
       "authentication_error",
       "invalid_api_key",
       "false"},
      {{base::Code::kPermissionDenied, "SCOPE_MISSING", "x"},
       403,
       "permission_error",
       "scope_missing",
       "false"},
      {base::not_found("MODEL_NOT_FOUND", "x"), 404, "not_found_error", "model_not_found", "false"},
      {{base::Code::kAlreadyExists, "NAME_TAKEN", "x"},
       409,
       "invalid_request_error",
       "name_taken",
       "false"},
      {base::invalid_argument("TOO_LARGE", "x"), 413, "invalid_request_error", "too_large",
       "false"},
      {{base::Code::kResourceExhausted, "RATE_LIMITED", "x"},
       429,
       "rate_limit_error",
       "rate_limit_exceeded",
       "true"},
      {{base::Code::kResourceExhausted, "QUOTA_EXCEEDED", "x"},
       429,
       "rate_limit_error",
       "insufficient_quota",
       "false"},
      {{base::Code::kUnimplemented, "NOT_SUPPORTED", "x"},
       501,
       "invalid_request_error",
       "not_supported",
       "false"},
      {base::unavailable("NO_WORKER", "x"), 503, "server_error", "no_worker", "true"},
      {{base::Code::kDeadlineExceeded, "DEADLINE", "x"}, 504, "server_error", "deadline", "true"},
      {base::internal("x"), 500, "server_error", "internal", "true"}};
  for (const auto& row : rows) {
    const Reply reply = error_reply(row.status, "r");
    const json error = json::parse(reply.body).at("error");
    EXPECT_EQ(reply.status, row.http) << row.code;
    EXPECT_EQ(error.at("type"), row.type);
    EXPECT_EQ(error.at("code"), row.code);
    EXPECT_EQ(header(reply, "x-should-retry"), row.retry) << row.code;
  }
}

TEST(HttpErrorTest, SaysWhenToComeAgain) {
  const Reply reply = error_reply(base::unavailable("NO_WORKER", "none"), "r");
  EXPECT_EQ(header(reply, "retry-after-ms"), "5000");
  EXPECT_EQ(header(reply, "Retry-After"), "5");
  EXPECT_EQ(header(error_reply(base::unavailable("WATCH_LAGGED", "x"), "r"), "Retry-After"), "1");
}

TEST(HttpErrorTest, StatusesOfGrpcItselfGetTheUsualReason) {
  const grpc::Status bare(grpc::StatusCode::UNAVAILABLE, "connection refused");
  EXPECT_EQ(http_status(bare), 503);
  EXPECT_EQ(error_json(bare, "r").at("error").at("code"), "store_unavailable");
}

TEST(HttpErrorTest, BytesOfAClientStillGiveJson) {
  EXPECT_TRUE(json::accept(error_reply(base::invalid_field("x", "\xff\xfe\"\n"), "r").body));
}

}  // namespace
}  // namespace dex::gateway::http
