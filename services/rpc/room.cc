#include "services/rpc/room.h"

#include <string>
#include <utility>

#include "services/rpc/headers.h"
#include "services/rpc/live_call.h"
#include "services/rpc/strictness.h"

namespace dex::rpc {

namespace {

base::Result<auth::Principal> named_caller(const grpc::CallbackServerContext& context) {
  return auth::Authenticator::from_gateway(header_of(context, kTenantHeader),
                                           header_of(context, kScopesHeader),
                                           header_of(context, kKeyHeader));
}

}  // namespace

Room::Room(const Options& options)
    : options_(options),
      unary_(options.unary),
      streams_(options.streams),
      transfers_(options.transfers) {}

Room::~Room() = default;

void Room::drain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  for (const auto& call : open()) call->drain();
}

void Room::cut() {
  for (const auto& call : open()) call->end(server_draining());
}

void Room::close() {
  unary_.close();
  streams_.close();
  transfers_.close();
}

std::vector<std::shared_ptr<LiveCall>> Room::open() const {
  std::vector<std::shared_ptr<LiveCall>> open;
  const std::lock_guard lock(mutex_);
  for (const auto& [_, call] : open_) {
    if (auto alive = call.lock()) open.push_back(std::move(alive));
  }
  return open;
}

base::Result<auth::Principal> Room::admit(const grpc::CallbackServerContext& context,
                                          const google::protobuf::Message* request) {
  if (draining_) return server_draining();
  auto caller = options_.behind_gateway ? named_caller(context)
                                        : authenticate(header_of(context, "authorization"));
  DEX_ASSIGN_OR_RETURN(auto principal, std::move(caller));
  if (request != nullptr) DEX_RETURN_IF_ERROR(check_known_fields(*request));
  return principal;
}

base::Result<auth::Principal> Room::authenticate(
    std::optional<std::string_view> authorization) const {
  static const auth::Authenticator kEverybody;
  return options_.callers ? options_.callers->authenticate(authorization)
                          : kEverybody.authenticate(authorization);
}

void Room::add(const std::shared_ptr<LiveCall>& call) {
  bool too_late = false;
  {
    const std::lock_guard lock(mutex_);
    open_.emplace(call.get(), call);
    too_late = draining_;
  }
  if (too_late) call->drain();  // drain() may have passed between admit and here
}

void Room::remove(LiveCall* call) {
  const std::lock_guard lock(mutex_);
  open_.erase(call);
}

base::Status overloaded(size_t waiting) {
  return {base::Code::kResourceExhausted, "RATE_LIMITED",
          "the server is busy and " + std::to_string(waiting) +
              " calls wait already; try again in a moment"};
}

}  // namespace dex::rpc
