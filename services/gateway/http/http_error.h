#pragma once

#include <grpcpp/support/status.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "services/base/status.h"
#include "services/gateway/http/exchange.h"

namespace dex::gateway::http {

// The one place where a failure becomes HTTP (api.md §1 and §7, "errors"). Both take a status as it
// came from the gRPC side, with its google.rpc details; one of ours (base::Status) is given the
// same details first. Statuses without details get their code's usual reason. Never called with OK.

// {"error": {message, type, param, code, category, retryable, request_id, details[]}}
nlohmann::json error_json(const grpc::Status& status, std::string_view request_id);
nlohmann::json error_json(const base::Status& status, std::string_view request_id);

// The body above with its HTTP status and the headers x-should-retry, retry-after-ms, Retry-After
// (the two only where the error says when to come again) and, for 401, WWW-Authenticate.
Reply error_reply(const grpc::Status& status, std::string_view request_id);
Reply error_reply(const base::Status& status, std::string_view request_id);

// Answers an exchange with it.
void refuse(Exchange& exchange, const grpc::Status& status);
void refuse(Exchange& exchange, const base::Status& status);

// The HTTP status of a failure: the reason's row in services/rpc/reasons.h, else its code's.
int http_status(const grpc::Status& status);

// JSON text with characters that are not UTF-8 replaced: what a client sent may come back in it.
std::string dump(const nlohmann::json& value);

// A reply with a JSON body.
Reply json_reply(const nlohmann::json& value, int status = 200);

}  // namespace dex::gateway::http
