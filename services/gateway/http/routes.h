#pragma once

#include "services/gateway/http/router.h"
#include "services/gateway/http/upstream.h"

namespace dex::gateway::http {

// What handlers may use; all outlive the server.
struct RouteParts {
  Upstream& upstream;
};

// Every route of the public door, one line a dialect: routes.cc is the place to add one.
void add_routes(Router& router, const RouteParts& parts);

}  // namespace dex::gateway::http
