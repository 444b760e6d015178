#include "services/gateway/http/http_error.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <optional>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "services/rpc/reasons.h"
#include "services/rpc/status.h"

namespace dex::gateway::http {

namespace {

using nlohmann::json;

// Words that OpenAI's clients know for the same thing.
std::string openai_code(const std::string& reason) {
  if (reason.starts_with("API_KEY_")) return "invalid_api_key";
  if (reason == "RATE_LIMITED") return "rate_limit_exceeded";
  if (reason == "QUOTA_EXCEEDED") return "insufficient_quota";
  std::string lower = reason;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lower;
}

std::string error_type(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      break;
  }
  // 501: the caller asks for what there is not; nothing is wrong here.
  return http_status >= 500 && http_status != 501 ? "server_error" : "invalid_request_error";
}

std::string metadata_of(const base::Status& status, std::string_view key) {
  for (const auto& [name, value] : status.metadata()) {
    if (name == key) return value;
  }
  return {};
}

google::rpc::Status wire_of(const grpc::Status& status) {
  google::rpc::Status wire;
  if (!wire.ParseFromString(status.error_details())) wire.Clear();
  return wire;
}

// Details as protobuf JSON, each with its "@type". One that this build does not know is left out.
json details_of(const google::rpc::Status& wire) {
  json details = json::array();
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  for (const auto& detail : wire.details()) {
    std::string text;
    if (!google::protobuf::util::MessageToJsonString(detail, &text, options).ok()) continue;
    json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_discarded()) details.push_back(std::move(parsed));
  }
  return details;
}

std::optional<int64_t> retry_after_ms(const google::rpc::Status& wire) {
  for (const auto& detail : wire.details()) {
    google::rpc::RetryInfo retry;
    if (!detail.Is<google::rpc::RetryInfo>() || !detail.UnpackTo(&retry)) continue;
    return retry.retry_delay().seconds() * 1000 + retry.retry_delay().nanos() / 1'000'000;
  }
  return std::nullopt;
}

json body_of(const base::Status& told, const google::rpc::Status& wire, int http_status,
             std::string_view request_id) {
  const auto& row = rpc::find_reason(told.reason(), told.code());
  const std::string param = metadata_of(told, "param");
  const std::string category = metadata_of(told, "category");
  json error = {{"message", told.message()},
                {"type", error_type(http_status)},
                {"param", param.empty() ? json(nullptr) : json(param)},
                {"code", openai_code(told.reason())},
                {"category", category.empty() ? std::string(row.category) : category},
                {"retryable", rpc::retryable(told)},
                {"request_id", request_id},
                {"details", details_of(wire)}};
  return {{"error", std::move(error)}};
}

}  // namespace

int http_status(const grpc::Status& status) {
  const base::Status told = rpc::from_grpc(status);
  return rpc::find_reason(told.reason(), told.code()).http_status;
}

nlohmann::json error_json(const grpc::Status& status, std::string_view request_id) {
  const grpc::Status full = rpc::with_error_info(status, request_id);
  return body_of(rpc::from_grpc(full), wire_of(full), http_status(full), request_id);
}

nlohmann::json error_json(const base::Status& status, std::string_view request_id) {
  return error_json(rpc::to_grpc(status, request_id), request_id);
}

Reply error_reply(const grpc::Status& status, std::string_view request_id) {
  const grpc::Status full = rpc::with_error_info(status, request_id);
  const base::Status told = rpc::from_grpc(full);
  const google::rpc::Status wire = wire_of(full);
  Reply reply = json_reply(error_json(full, request_id), http_status(full));
  reply.headers.emplace_back("x-should-retry", rpc::retryable(told) ? "true" : "false");
  if (const auto wait = retry_after_ms(wire)) {
    reply.headers.emplace_back("retry-after-ms", std::to_string(*wait));
    reply.headers.emplace_back("Retry-After", std::to_string((*wait + 999) / 1000));
  }
  if (reply.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

Reply error_reply(const base::Status& status, std::string_view request_id) {
  return error_reply(rpc::to_grpc(status, request_id), request_id);
}

void refuse(Exchange& exchange, const grpc::Status& status) {
  exchange.reply(error_reply(status, exchange.request().request_id));
}

void refuse(Exchange& exchange, const base::Status& status) {
  exchange.reply(error_reply(status, exchange.request().request_id));
}

std::string dump(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Reply json_reply(const nlohmann::json& value, int status) {
  Reply reply;
  reply.status = status;
  reply.body = dump(value);
  return reply;
}

}  // namespace dex::gateway::http
