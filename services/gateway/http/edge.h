#pragma once

#include "services/monitor/http_server.h"
#include "services/monitor/monitor_server.h"

namespace dex::gateway {

// An error body in OpenAI's shape: {"error": {"message", "type", "param", "code"}}. `code` is the
// reason word of api.md §1.
monitor::HttpResponse openai_error(int status, const std::string& code, const std::string& message);

// What the public HTTP port answers: /healthz, /readyz, /metrics, and a 404 `ROUTE_NOT_FOUND` in
// OpenAI's error shape for the rest. Every reply has an x-request-id.
monitor::HttpServer::Handler edge_handler(monitor::Registry& metrics, monitor::Readiness readiness);

}  // namespace dex::gateway
