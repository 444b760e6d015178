#include "services/gateway/http/http_metrics.h"

namespace dex::gateway::http {

HttpMetrics::HttpMetrics(monitor::Registry& registry)
    : requests_(registry.counters("dex_http_requests_total",
                                  "HTTP requests, by the route's pattern and the answer's code")),
      durations_(registry.histograms("dex_http_request_duration_seconds",
                                     "Time from a request's head to the end of its answer")),
      connections_(registry.gauge("dex_http_connections", "HTTP connections that are open")),
      refused_(registry.counter("dex_http_refused_connections_total",
                                "HTTP connections closed at once: too many were open")) {}

void HttpMetrics::request(const std::string& route, int code,
                          std::chrono::steady_clock::duration took) {
  requests_.Add({{"route", route}, {"code", std::to_string(code)}}).Increment();
  durations_.Add({{"route", route}}, monitor::latency_bounds())
      .Observe(std::chrono::duration<double>(took).count());
}

}  // namespace dex::gateway::http
