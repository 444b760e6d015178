#pragma once

#include <grpcpp/support/server_interceptor.h>

#include "services/monitor/registry.h"

namespace dex::rpc {

// Times every call of a server into dex_rpc_duration_seconds{method,code}: from its start to the
// moment its status is sent. Methods that are in none of the linked .proto files count as "other",
// so that callers can't make labels. Counts and times, nothing else: a 1.51 interceptor can refuse
// nothing.
class MetricsInterceptorFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit MetricsInterceptorFactory(monitor::Registry& metrics);
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  prometheus::Family<prometheus::Histogram>& durations_;
};

// "dex.v1.FileService/GetFile" for the path of a known method, else "other".
std::string method_label(std::string_view path);
// "NOT_FOUND"
std::string code_label(grpc::StatusCode code);

}  // namespace dex::rpc
