#include "services/rpc/call_log.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "services/rpc/call.h"
#include "services/rpc/metrics_interceptor.h"

namespace dex::rpc {

namespace {

using grpc::experimental::InterceptionHookPoints;
using Clock = std::chrono::steady_clock;

// "00-" 32 digits "-" 16 digits "-" 2 digits
constexpr size_t kTraceAt = 3, kTraceDigits = 32, kParentAt = 36, kParentDigits = 16, kFlagsAt = 53,
                 kLength = 55;

bool is_hexadecimal(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool all_zeros(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

class TracedCall : public grpc::experimental::Interceptor {
 public:
  explicit TracedCall(std::string method) : method_(std::move(method)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      const auto* headers = methods->GetRecvInitialMetadata();
      const auto found = headers->find(kTraceParentHeader);
      if (found != headers->end())
        traceparent_ = trace_parent_of({found->second.data(), found->second.size()});
    }
    // The call's own id, also where its client sent none.
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      const auto* headers = methods->GetSendInitialMetadata();
      const auto found = headers->find(kRequestIdHeader);
      if (found != headers->end()) request_id_ = found->second;
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      log_traced_call(method_, code_label(methods->GetSendStatus().error_code()),
                      Clock::now() - start_, request_id_, traceparent_);
    }
    methods->Proceed();
  }

 private:
  const std::string method_;
  const Clock::time_point start_ = Clock::now();
  std::string traceparent_, request_id_;
};

}  // namespace

std::string trace_parent_of(std::string_view header) {
  // Later versions may add more behind the flags; what is known of them is the same.
  if (header.size() < kLength || (header.size() > kLength && header[kLength] != '-')) return "";
  const std::string_view known = header.substr(0, kLength);
  if (known[kTraceAt - 1] != '-' || known[kParentAt - 1] != '-' || known[kFlagsAt - 1] != '-')
    return "";
  const auto version = known.substr(0, 2), trace = known.substr(kTraceAt, kTraceDigits),
             parent = known.substr(kParentAt, kParentDigits), flags = known.substr(kFlagsAt, 2);
  if (!is_hexadecimal(version) || !is_hexadecimal(trace) || !is_hexadecimal(parent) ||
      !is_hexadecimal(flags))
    return "";
  if (version == "ff" || all_zeros(trace) || all_zeros(parent)) return "";
  if (version == "00" && header.size() != kLength) return "";
  return std::string(known);
}

void log_traced_call(std::string_view what, std::string_view code, Clock::duration took,
                     std::string_view request_id, std::string_view traceparent) {
  if (traceparent.empty()) return;
  const auto took_ms = std::chrono::duration_cast<std::chrono::milliseconds>(took).count();
  spdlog::info("{}: {} in {} ms, request_id {}, traceparent {}", what, code, took_ms,
               request_id.empty() ? "-" : request_id, traceparent);
}

grpc::experimental::Interceptor* CallLogFactory::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  return new TracedCall(method_label(info->method()));  // gRPC owns and deletes it
}

}  // namespace dex::rpc
