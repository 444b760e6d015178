#pragma once

#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/base/status.h"
#include "services/gateway/http/exchange.h"
#include "services/gateway/http/origin.h"
#include "services/gateway/http/router.h"

namespace dex::gateway::http {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;

// What a request's head means for this server. Pure.
struct Intake {
  Request request;         // as far as it could be read
  bool head_only = false;  // HEAD
  bool http10 = false;
  bool keep_alive = false;             // the client would like to
  bool expects_continue = false;       // it waits for 100 before it sends the body
  std::optional<uint64_t> body_bytes;  // Content-Length; none: chunked, or no body
  bool has_body = false;
  const Router::Route* route = nullptr;  // null: `reply` answers
  // The answer, when no handler is to be asked. Else empty.
  std::optional<Reply> reply;
  std::string label = "unknown";  // the route's pattern, for metrics
};

// Reads a parsed head: version, method, target, Host and framing, the route, who may ask
// (origin.h), how large the body may be. `draining`: routes that are not open answer 503
// `SERVER_DRAINING`.
Intake take_in(const RequestParser& parser, const Router& router, const OriginPolicy& policy,
               bool draining);

// The answer to bytes that are no HTTP request; status 431, 413 or 400.
Reply refuse_bytes(boost::beast::error_code error);

base::Status body_too_large(uint64_t most);

// The client's x-request-id if it is 1–64 printable characters, else a new one.
std::string request_id_from(const Request& request);

}  // namespace dex::gateway::http
