#pragma once

#include <memory>

#include "services/gateway/http/router.h"
#include "services/gateway/http/static_files.h"
#include "services/gateway/http/upstream.h"
#include "services/monitor/monitor_server.h"
#include "services/monitor/registry.h"
#include "services/rpc/room.h"

namespace dex::gateway::http {

// What handlers may use; all outlive the server.
struct RouteParts {
  Upstream& upstream;
  rpc::Room& room;
  monitor::Registry& metrics;
  monitor::Readiness readiness;
  std::shared_ptr<const StaticFiles> pages;  // null: no dashboard
};

// Every route of the public door, one line a dialect: routes.cc is the place to add one.
void add_routes(Router& router, const RouteParts& parts);

}  // namespace dex::gateway::http
