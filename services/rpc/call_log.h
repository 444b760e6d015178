#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <chrono>
#include <string>
#include <string_view>

namespace dex::rpc {

inline constexpr const char* kTraceParentHeader = "traceparent";

// A traceparent header as W3C Trace Context has it (version, trace, parent, flags in lower-case
// hexadecimal, neither id all zeros), else "": what a client sends must not make up log lines.
std::string trace_parent_of(std::string_view header);

// The line by which a trace finds a process's part of it: what was called, how it ended, how long
// it took, both ids. At level info; nothing without a traceparent, so callers that trace nothing
// log nothing.
void log_traced_call(std::string_view what, std::string_view code,
                     std::chrono::steady_clock::duration took, std::string_view request_id,
                     std::string_view traceparent);

// log_traced_call() for every call of a server at its end. Each of our servers has one
// (server.cc): the gateway's doors, the scheduler, the agents'.
class CallLogFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;
};

}  // namespace dex::rpc
