#include "services/rpc/metrics_interceptor.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <chrono>

#include "services/base/status.h"

namespace dex::rpc {

namespace {

using grpc::experimental::InterceptionHookPoints;

class Stopwatch : public grpc::experimental::Interceptor {
 public:
  Stopwatch(prometheus::Family<prometheus::Histogram>& durations, std::string method)
      : durations_(durations), method_(std::move(method)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
      durations_
          .Add({{"method", method_}, {"code", code_label(methods->GetSendStatus().error_code())}},
               monitor::latency_bounds())
          .Observe(took.count());
    }
    methods->Proceed();
  }

 private:
  prometheus::Family<prometheus::Histogram>& durations_;
  const std::string method_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

MetricsInterceptorFactory::MetricsInterceptorFactory(monitor::Registry& metrics)
    : durations_(metrics.histograms("dex_rpc_duration_seconds",
                                    "Time from a call's start to its status")) {}

grpc::experimental::Interceptor* MetricsInterceptorFactory::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  return new Stopwatch(durations_, method_label(info->method()));  // gRPC owns and deletes it
}

std::string method_label(std::string_view path) {
  if (path.starts_with('/')) path.remove_prefix(1);
  std::string dotted(path);
  std::replace(dotted.begin(), dotted.end(), '/', '.');
  const auto* known = google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(dotted);
  return known != nullptr ? std::string(path) : "other";
}

std::string code_label(grpc::StatusCode code) {
  if (code == grpc::StatusCode::UNKNOWN) return "UNKNOWN";
  return std::string(base::name(static_cast<base::Code>(code)));
}

}  // namespace dex::rpc
