#include "services/gateway/metrics.h"

#include <chrono>
#include <string>

#include "services/rpc/metrics_interceptor.h"

namespace dex::gateway {

Metrics::Metrics(monitor::Registry& registry)
    : requests_(registry.counters("dex_gateway_requests_total",
                                  "Calls handed on to scheduler or workers, by how they ended")),
      rejected_(registry.counters("dex_gateway_rejected_total",
                                  "Calls that the gateway itself refused, by the error's reason")),
      snapshot_(registry.gauge("dex_gateway_snapshot_timestamp_seconds",
                               "When the routes were last known to be the scheduler's, in Unix "
                               "time; 0 before the first")) {}

void Metrics::request(std::string_view path, grpc::StatusCode code) {
  requests_.Add({{"method", rpc::method_label(path)}, {"code", rpc::code_label(code)}}).Increment();
}

void Metrics::rejected(std::string_view reason) {
  rejected_.Add({{"reason", std::string(reason)}}).Increment();
}

void Metrics::snapshot_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  snapshot_.Set(std::chrono::duration<double>(now).count());
}

}  // namespace dex::gateway
