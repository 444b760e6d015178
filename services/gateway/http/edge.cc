#include "services/gateway/http/edge.h"

#include <nlohmann/json.hpp>

#include "services/rpc/call.h"

namespace dex::gateway {

monitor::HttpResponse openai_error(int status, const std::string& code,
                                   const std::string& message) {
  const nlohmann::json body = {{"error",
                                {{"message", message},
                                 {"type", status < 500 ? "invalid_request_error" : "server_error"},
                                 {"param", nullptr},
                                 {"code", code}}}};
  monitor::HttpResponse response;
  response.status = status;
  response.content_type = "application/json";
  // A path may hold any bytes; they come back as the replacement character.
  response.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return response;
}

monitor::HttpServer::Handler edge_handler(monitor::Registry& metrics,
                                          monitor::Readiness readiness) {
  return [&metrics, readiness = std::move(readiness)](const monitor::HttpRequest& request) {
    auto known = monitor::answer_monitor_route(request, metrics, readiness);
    monitor::HttpResponse response =
        known ? std::move(*known)
              : openai_error(404, "ROUTE_NOT_FOUND",
                             "there is no route " + request.method + " " +
                                 request.path.substr(0, 200) +
                                 " on this server; use gRPC, or /healthz, /readyz, /metrics");
    response.headers.emplace_back(rpc::kRequestIdHeader, rpc::new_request_id());
    return response;
  };
}

}  // namespace dex::gateway
