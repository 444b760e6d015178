#include "services/gateway/http/intake.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "services/gateway/http/http_error.h"
#include "services/gateway/http/target.h"
#include "services/rpc/call.h"
#include "services/rpc/live_call.h"

namespace dex::gateway::http {

namespace {

namespace beast_http = boost::beast::http;

std::string lower_name(boost::beast::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return lower;
}

// The head's lines as a Request; what they say is judged afterwards.
void copy_lines(const RequestParser& parser, Intake& intake) {
  const auto& message = parser.get();
  Request& request = intake.request;
  request.method = std::string(message.method_string());
  for (const auto& field : message) {
    request.headers.emplace_back(lower_name(field.name_string()), std::string(field.value()));
  }
  request.request_id = request_id_from(request);
  intake.http10 = message.version() == 10;
  intake.keep_alive = message.keep_alive();
  intake.head_only = request.method == "HEAD";
  if (const auto length = parser.content_length()) intake.body_bytes = *length;
  intake.has_body = parser.chunked() || intake.body_bytes.value_or(0) > 0;
}

size_t count(const Request& request, std::string_view name) {
  return static_cast<size_t>(std::count_if(request.headers.begin(), request.headers.end(),
                                           [&](const auto& line) { return line.first == name; }));
}

// What RFC 9112 asks of a head, and what two servers could read differently (request smuggling).
base::Status check_framing(const RequestParser& parser, Intake& intake) {
  const Request& request = intake.request;
  const unsigned version = parser.get().version();
  if (version != 10 && version != 11) {
    return base::invalid_field("version", "this server speaks HTTP/1.1 and HTTP/1.0 alone");
  }
  const size_t hosts = count(request, "host");
  if (hosts > 1 || (hosts == 0 && version == 11)) {
    return base::invalid_field(
        "host", "a request needs exactly one Host header, got " + std::to_string(hosts));
  }
  if (count(request, "transfer-encoding") > 0) {
    const std::string coding = lower_name(*request.header("transfer-encoding"));
    if (version == 10 || coding != "chunked" || count(request, "transfer-encoding") > 1) {
      return base::invalid_field("transfer-encoding",
                                 "the one transfer coding that requests may use is 'chunked'");
    }
  }
  const auto expect = request.header("expect");
  if (!expect) return {};
  if (lower_name(*expect) != "100-continue") {
    return base::invalid_field("expect", "the one expectation this server meets is 100-continue");
  }
  intake.expects_continue = version == 11 && intake.has_body;
  return {};
}

base::Status take_target(const RequestParser& parser, Request& request) {
  const auto text = parser.get().target();
  if (request.method == "OPTIONS" && text == "*") {
    request.path = "*";
    return {};
  }
  auto target = parse_target({text.data(), text.size()});
  if (!target.ok()) return target.status();
  request.path = std::move(target->path);
  request.segments = std::move(target->segments);
  request.query = std::move(target->query);
  return {};
}

base::Status check_body(const Intake& intake, const RouteOptions& options) {
  if (!intake.has_body) return {};
  if (options.body == Body::kNone) {
    return base::invalid_field("body", intake.request.method + " takes no body here");
  }
  return intake.body_bytes.value_or(0) > options.body_bytes ? body_too_large(options.body_bytes)
                                                            : base::Status();
}

// OK with intake.route set, or the refusal.
base::Status find_route(const Router& router, const OriginPolicy& policy, bool draining,
                        Intake& intake) {
  Request& request = intake.request;
  auto match = router.find(request.method, request.segments);
  const bool open = match.route != nullptr && match.route->options.open;
  if (!open) {
    const bool changes = match.route == nullptr || match.route->options.changes_state;
    DEX_RETURN_IF_ERROR(check_origin(policy, request, changes));
    if (draining) return rpc::server_draining();
  }
  if (match.route == nullptr) {
    if (match.allow.empty()) return match.refusal;
    intake.reply = error_reply(match.refusal, request.request_id);
    intake.reply->headers.emplace_back("Allow", match.allow);
    return match.refusal;
  }
  intake.label = match.route->pattern;
  if (policy.admit && match.route->options.body != Body::kNone)
    DEX_RETURN_IF_ERROR(policy.admit(request));
  DEX_RETURN_IF_ERROR(check_body(intake, match.route->options));
  intake.route = match.route;
  request.route = match.route->pattern;
  request.parameters = std::move(match.parameters);
  if (intake.head_only) request.method = "GET";
  return {};
}

}  // namespace

base::Status body_too_large(uint64_t most) {
  return base::bad_field(
      "TOO_LARGE", "body",
      "of the request may have " + std::to_string(most) + " bytes at most on this route");
}

std::string request_id_from(const Request& request) {
  auto sent = request.header(rpc::kRequestIdHeader);
  const bool usable =
      sent && !sent->empty() && sent->size() <= 64 &&
      std::all_of(sent->begin(), sent->end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  return usable ? std::move(*sent) : rpc::new_request_id();
}

Intake take_in(const RequestParser& parser, const Router& router, const OriginPolicy& policy,
               bool draining) {
  Intake intake;
  copy_lines(parser, intake);
  base::Status fault = check_framing(parser, intake);
  const bool framed = fault.ok();
  if (fault.ok()) fault = take_target(parser, intake.request);
  if (fault.ok() && intake.request.method == "OPTIONS") {
    intake.label = "preflight";
    intake.reply = options_reply(policy, intake.request, router.methods(intake.request.segments));
    return intake;
  }
  if (fault.ok()) fault = find_route(router, policy, draining, intake);
  if (fault.ok()) return intake;
  if (!intake.reply) intake.reply = error_reply(fault, intake.request.request_id);
  if (!framed) {
    // Where the body ends is in doubt: nothing after this head is read.
    intake.keep_alive = false;
    intake.label = "invalid";
  }
  return intake;
}

Reply refuse_bytes(boost::beast::error_code error) {
  base::Status why;
  if (error == beast_http::error::header_limit || error == beast_http::error::buffer_overflow) {
    why = base::bad_field("HEADERS_TOO_LARGE", "headers", "may have 16 KiB together at most");
  } else if (error == beast_http::error::body_limit) {
    why = base::bad_field("TOO_LARGE", "body", "of the request is too large");
  } else {
    why = base::invalid_field("request", "these bytes are no HTTP request: " + error.message());
  }
  return error_reply(why, rpc::new_request_id());
}

}  // namespace dex::gateway::http
