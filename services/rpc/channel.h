#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <string>

namespace dex::rpc {

// A plaintext channel to "host:port" or "unix:/path", between processes of one machine or a private
// network. Connects when first used and again by itself, at most 2.4 s apart (jobs.md §4: gRPC's
// own back-off outlasts the settle window); pings every 30 s, also without calls, so that a dead
// peer is noticed. Messages up to 4 MiB. Each channel has its own connection. Don't destroy it
// inside a gRPC callback.
std::shared_ptr<grpc::Channel> channel(const std::string& address);

// Sets the deadline of a call that is about to start; every call has one. A zero or negative time
// is over at once.
void set_timeout(grpc::ClientContext& context, std::chrono::milliseconds timeout);

}  // namespace dex::rpc
