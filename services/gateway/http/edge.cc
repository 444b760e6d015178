#include "services/gateway/http/edge.h"

#include <utility>

#include "services/gateway/http/http_error.h"

namespace dex::gateway::http {

void add_edge_routes(Router& router, rpc::Room& room, monitor::Registry& metrics,
                     monitor::Readiness readiness) {
  RouteOptions options;
  options.body = Body::kNone;
  options.changes_state = false;
  options.open = true;
  const auto answer = [&metrics, readiness = std::move(readiness)](const ExchangePtr& exchange) {
    const monitor::HttpRequest asked{"GET", exchange->request().route, "", ""};
    auto known = monitor::answer_monitor_route(asked, metrics, readiness);
    Reply reply;
    reply.status = known->status;
    reply.content_type = std::move(known->content_type);
    reply.body = std::move(known->body);
    exchange->reply(std::move(reply));
  };
  router.add("GET", "/healthz", answer, options);
  router.add("GET", "/readyz", answer, options);
  options.open = false;  // has data: not for names that were made to point here
  router.add(
      "GET", "/metrics",
      [&room, answer](const ExchangePtr& exchange) {
        const auto caller = room.authenticate(exchange->request().header("authorization"));
        const base::Status allowed =
            caller.ok() ? auth::require(*caller, auth::Scope::kMetricsRead) : caller.status();
        allowed.ok() ? answer(exchange) : refuse(*exchange, allowed);
      },
      options);
}

}  // namespace dex::gateway::http
