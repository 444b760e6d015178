#include "services/monitor/monitor_server.h"

namespace dex::monitor {

namespace {

constexpr const char* kExposition = "text/plain; version=0.0.4; charset=utf-8";

HttpResponse text(int status, std::string body) {
  HttpResponse response;
  response.status = status;
  response.body = std::move(body) + "\n";
  return response;
}

HttpResponse ready(const Readiness& readiness) {
  const base::Status status = readiness();
  return status.ok() ? text(200, "ready") : text(503, "not ready: " + status.message());
}

}  // namespace

std::optional<HttpResponse> answer_monitor_route(const HttpRequest& request, Registry& metrics,
                                                 const Readiness& readiness) {
  const bool known =
      request.path == "/healthz" || request.path == "/readyz" || request.path == "/metrics";
  if (!known) return std::nullopt;
  if (request.method != "GET" && request.method != "HEAD") {
    HttpResponse refused = text(405, "use GET for " + request.path);
    refused.headers.emplace_back("Allow", "GET, HEAD");
    return refused;
  }
  if (request.path == "/healthz") return text(200, "ok");
  if (request.path == "/readyz") return ready(readiness);
  return HttpResponse{200, kExposition, metrics.text(), {}};
}

base::Result<std::unique_ptr<HttpServer>> start_monitor_server(const std::string& address,
                                                               Registry& metrics,
                                                               Readiness readiness) {
  HttpServer::Options options;
  options.address = address;
  return HttpServer::start(
      options, [&metrics, readiness = std::move(readiness)](const HttpRequest& request) {
        auto answer = answer_monitor_route(request, metrics, readiness);
        return answer ? *answer : text(404, "no such page; try /metrics, /healthz or /readyz");
      });
}

}  // namespace dex::monitor
