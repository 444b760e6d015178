#pragma once

#include <grpcpp/support/status.h>

#include <string_view>

#include "services/monitor/registry.h"

namespace dex::gateway {

// What the gateway counts (jobs.md §12). Thread-safe.
class Metrics {
 public:
  explicit Metrics(monitor::Registry& registry);  // outlives this object

  // A call that went through, by its path ("/dex.v1.FileService/GetFile").
  void request(std::string_view path, grpc::StatusCode code);
  // A call that the gateway refused itself, by the error's reason.
  void rejected(std::string_view reason);
  // The routes are the scheduler's of now: a snapshot came, or the watch that brought it stands.
  void snapshot_now();

 private:
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Counter>& rejected_;
  prometheus::Gauge& snapshot_;
};

}  // namespace dex::gateway
