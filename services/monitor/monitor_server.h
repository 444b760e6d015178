#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "services/base/status.h"
#include "services/monitor/http_server.h"
#include "services/monitor/registry.h"

namespace dex::monitor {

// OK when the process can do its work; else why not, as one sentence for people.
using Readiness = std::function<base::Status()>;

// The routes that every process answers: GET /healthz (alive), /readyz (ready, else 503 with the
// reason), /metrics. nullopt for any other path. 405 for other methods than GET and HEAD.
std::optional<HttpResponse> answer_monitor_route(const HttpRequest& request, Registry& metrics,
                                                 const Readiness& readiness);

// A server with those routes alone; 404 otherwise. `metrics` and what `readiness` uses outlive it.
// readiness runs on the server's thread and must not block.
base::Result<std::unique_ptr<HttpServer>> start_monitor_server(const std::string& address,
                                                               Registry& metrics,
                                                               Readiness readiness);

}  // namespace dex::monitor
