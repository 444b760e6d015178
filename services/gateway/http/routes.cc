#include "services/gateway/http/routes.h"

#include "services/gateway/http/adapter_files.h"
#include "services/gateway/http/edge.h"
#include "services/gateway/http/rpc_bridge.h"
#include "services/gateway/openai/routes.h"

namespace dex::gateway::http {

void add_routes(Router& router, const RouteParts& parts) {
  add_edge_routes(router, parts.room, parts.metrics, parts.readiness);
  add_rpc_bridge(router, parts.upstream);
  add_adapter_files(router, parts.upstream);
  openai::add_openai_routes(router, parts.upstream, parts.room);
  add_pages(router, parts.pages);
}

}  // namespace dex::gateway::http
