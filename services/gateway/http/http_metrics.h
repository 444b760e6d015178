#pragma once

#include <chrono>
#include <string>

#include "services/monitor/registry.h"

namespace dex::gateway::http {

// What the HTTP door counts. `route` is a pattern of the router, never a path: "/v1/files/{id}";
// for requests that no route took "unknown", for those that were no HTTP "invalid". Thread-safe.
class HttpMetrics {
 public:
  explicit HttpMetrics(monitor::Registry& registry);  // outlives this object

  // An answer is complete, or its client has gone (code 499). A stream counts at its end.
  void request(const std::string& route, int code, std::chrono::steady_clock::duration took);
  void connections(int change) { connections_.Increment(change); }
  void refused_connection() { refused_.Increment(); }

 private:
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& durations_;
  prometheus::Gauge& connections_;
  prometheus::Counter& refused_;
};

}  // namespace dex::gateway::http
