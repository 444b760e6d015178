#include "services/gateway/metrics.h"

#include <string>

#include "services/rpc/metrics_interceptor.h"

namespace dex::gateway {

Metrics::Metrics(monitor::Registry& registry)
    : requests_(registry.counters("dex_gateway_requests_total",
                                  "Calls handed on to scheduler or workers, by how they ended")),
      rejected_(registry.counters("dex_gateway_rejected_total",
                                  "Calls that the gateway itself refused, by the error's reason")),
      snapshot_(registry.gauge("dex_gateway_snapshot_timestamp_seconds",
                               "When the last route snapshot came, in Unix time; 0 before")) {}

void Metrics::request(std::string_view path, grpc::StatusCode code) {
  requests_.Add({{"method", rpc::method_label(path)}, {"code", rpc::code_label(code)}}).Increment();
}

void Metrics::rejected(std::string_view reason) {
  rejected_.Add({{"reason", std::string(reason)}}).Increment();
}

void Metrics::snapshot_now() {
  snapshot_.SetToCurrentTime();
}

}  // namespace dex::gateway
