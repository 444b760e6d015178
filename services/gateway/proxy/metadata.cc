#include "services/gateway/proxy/metadata.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "services/rpc/headers.h"

namespace dex::gateway {

namespace {

std::string_view view(const grpc::string_ref& text) {
  return {text.data(), text.size()};
}
std::string copy(const grpc::string_ref& text) {
  return {text.data(), text.size()};
}

// Keys that gRPC writes itself on every hop.
bool is_transport(std::string_view name) {
  constexpr std::string_view kNames[] = {"user-agent", "content-type",    "te",
                                         "host",       "accept-encoding", "content-encoding"};
  return name.starts_with(':') || name.starts_with("grpc-") ||
         std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool is_gateways_own(std::string_view name) {
  return name == rpc::kTenantHeader || name == rpc::kScopesHeader || name == rpc::kKeyHeader ||
         name.starts_with("dex-routed-") || name == rpc::kRequestIdHeader ||
         name == "authorization";
}

}  // namespace

void hand_on(const grpc::CallbackServerContext& from, const rpc::Call& call,
             grpc::ClientContext& to) {
  for (const auto& [name, value] : from.client_metadata()) {
    if (is_transport(view(name)) || is_gateways_own(view(name))) continue;
    to.AddMetadata(copy(name), copy(value));
  }
  to.AddMetadata(rpc::kRequestIdHeader, call.request_id());
  const auth::Principal& caller = call.principal();
  to.AddMetadata(rpc::kTenantHeader, caller.tenant());
  to.AddMetadata(rpc::kScopesHeader, auth::scope_words(caller.scopes()));
  if (!caller.key().empty()) to.AddMetadata(rpc::kKeyHeader, caller.key());
  if (call.deadline() != std::chrono::system_clock::time_point::max()) {
    to.set_deadline(call.deadline());
  }
}

MetadataList headers_of(const grpc::ClientContext& from) {
  MetadataList headers;
  for (const auto& [name, value] : from.GetServerInitialMetadata()) {
    if (is_transport(view(name)) || is_gateways_own(view(name))) continue;
    headers.emplace_back(copy(name), copy(value));
  }
  return headers;
}

void return_trailers(const grpc::ClientContext& from, grpc::CallbackServerContext& to) {
  for (const auto& [name, value] : from.GetServerTrailingMetadata()) {
    // grpc-status-details-bin is among the skipped: it comes with the status.
    if (is_transport(view(name)) || is_gateways_own(view(name))) continue;
    to.AddTrailingMetadata(copy(name), copy(value));
  }
}

}  // namespace dex::gateway
