#include "services/rpc/live_call.h"

#include "services/rpc/room.h"
#include "services/rpc/status.h"

namespace dex::rpc {

namespace {

using WallTime = std::chrono::system_clock::time_point;

WallTime last_moment(const grpc::CallbackServerContext& context,
                     std::optional<std::chrono::milliseconds> cap) {
  const WallTime asked = context.deadline();
  return cap ? std::min(asked, std::chrono::system_clock::now() + *cap) : asked;
}

}  // namespace

LiveCall::LiveCall(Room& room, grpc::CallbackServerContext& context, auth::Principal principal,
                   std::optional<std::chrono::milliseconds> cap)
    : room_(room),
      context_(context),
      call_(context, std::move(principal), request_id_of(context), last_moment(context, cap)) {
  context_.AddInitialMetadata(kRequestIdHeader, call_.request_id());
}

void LiveCall::drain() {
  end(server_draining());
}

void LiveCall::open() {
  self_ = shared_from_this();
  // gRPC cancels the call at the client's deadline by itself; only an earlier cap needs a timer.
  if (call_.deadline() < context_.deadline()) {
    deadline_timer_ = room_.timer().at(std::chrono::steady_clock::now() + call_.time_left(),
                                       [weak = weak_from_this()] {
                                         if (const auto live = weak.lock())
                                           live->end(deadline_passed());
                                       });
  }
  room_.add(self_);
}

void LiveCall::done() {
  if (deadline_timer_) room_.timer().cancel(*deadline_timer_);
  call_.request_stop();
  room_.remove(this);
  self_.reset();
}

grpc::Status LiveCall::last_word(const base::Status& status) {
  call_.send_trailers(context_);
  return to_grpc(status, call_.request_id());
}

grpc::Status refusal(grpc::CallbackServerContext& context, const base::Status& why) {
  const std::string request_id = request_id_of(context);
  context.AddInitialMetadata(kRequestIdHeader, request_id);
  return to_grpc(why, request_id);
}

base::Status deadline_passed() {
  return {base::Code::kDeadlineExceeded, "DEADLINE", "the call took longer than it may"};
}

base::Status client_cancelled() {
  return {base::Code::kCancelled, "CLIENT_CANCELLED", "the client ended the call"};
}

base::Status server_draining() {
  return base::unavailable("SERVER_DRAINING", "the server is stopping; try again");
}

base::Status dropped_by_handler() {
  return base::internal("the server gave the call up without an answer");
}

}  // namespace dex::rpc
