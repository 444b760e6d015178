#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>
#include <utility>
#include <vector>

#include "services/rpc/call.h"

namespace dex::gateway {

// What travels with a call that is handed on: the client's metadata without credentials, without
// gRPC's own keys and without the names that only a gateway may set; then x-request-id, who calls
// (tenant, scopes, id of the key) and the deadline.
void hand_on(const grpc::CallbackServerContext& from, const rpc::Call& call,
             grpc::ClientContext& to);

// The way back: what the upstream's own code sent as initial or trailing metadata. Only after
// initial metadata, or the status, has come.
using MetadataList = std::vector<std::pair<std::string, std::string>>;
MetadataList headers_of(const grpc::ClientContext& from);
void return_trailers(const grpc::ClientContext& from, grpc::CallbackServerContext& to);

}  // namespace dex::gateway
