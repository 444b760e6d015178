#pragma once

#include "services/gateway/http/router.h"
#include "services/monitor/monitor_server.h"
#include "services/monitor/registry.h"
#include "services/rpc/room.h"

namespace dex::gateway::http {

// GET /healthz (alive) and /readyz (serves, else 503 with the reason), both for everybody and while
// the server drains; /metrics for keys with `metrics:read`. What is passed outlives the router;
// `readiness` must not block.
void add_edge_routes(Router& router, rpc::Room& room, monitor::Registry& metrics,
                     monitor::Readiness readiness);

}  // namespace dex::gateway::http
