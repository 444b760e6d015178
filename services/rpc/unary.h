#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "services/base/status.h"
#include "services/rpc/live_call.h"
#include "services/rpc/room.h"

namespace dex::rpc {

namespace detail {

// A unary call that ends exactly once, by its answer or early.
class UnaryCall : public grpc::ServerUnaryReactor, public LiveCall {
 public:
  // `patient`: the call has no thread of its own, so deadline, drain and cancellation answer it at
  // once. Otherwise deadline and cancellation ask the handler to stop, and its return answers.
  UnaryCall(Room& room, grpc::CallbackServerContext& context, auth::Principal principal,
            std::chrono::milliseconds cap, bool patient);

  using LiveCall::open;
  // True for one caller only: the one that may write the reply and must call answer() next.
  bool claim() { return !claimed_.exchange(true); }
  void answer(const base::Status& status);
  void end(base::Status why) override;
  void drain() override;

  void OnCancel() override;
  void OnDone() override { done(); }

 private:
  const bool patient_;
  std::atomic<bool> claimed_{false};
};

grpc::ServerUnaryReactor* refuse(grpc::CallbackServerContext& context, const base::Status& why);
grpc::ServerUnaryReactor* run_erased(Room& room, grpc::CallbackServerContext* context,
                                     const google::protobuf::Message* in,
                                     std::optional<std::chrono::milliseconds> cap,
                                     std::function<base::Status(Call&)> body);
std::shared_ptr<UnaryCall> open_patient(Room& room, grpc::CallbackServerContext* context,
                                        auth::Principal principal, std::chrono::milliseconds cap);
// Runs the task on the unary threads, or ends the call because they are all taken.
void start(Room& room, UnaryCall& call, std::function<void()> task);

}  // namespace detail

// Answers a unary call. `handler(Call&)` returns base::Result<Reply>; it runs on the room's unary
// threads and may wait there until Call::deadline(). `in` and `out` are gRPC's and live until then.
// Brings admission (drain, caller, unknown fields), the cap (default: the room's), x-request-id and
// google.rpc details. RESOURCE_EXHAUSTED `RATE_LIMITED` when the threads and their queue are full.
//
//   return rpc::run(room_, ctx, in, out,
//                   [=, this](rpc::Call& call) { return jobs_.create(call.principal(), *in); });
template <typename Request, typename Reply, typename Handler>
grpc::ServerUnaryReactor* run(Room& room, grpc::CallbackServerContext* context, const Request* in,
                              Reply* out, Handler handler,
                              std::optional<std::chrono::milliseconds> cap = std::nullopt) {
  return detail::run_erased(room, context, in, cap,
                            [out, handler = std::move(handler)](Call& call) -> base::Status {
                              base::Result<Reply> reply = handler(call);
                              if (!reply.ok()) return reply.status();
                              *out = std::move(reply).value();
                              return {};
                            });
}

// The answer that somebody still owes. Give it from any thread, once; what comes later is dropped.
// If it is destroyed unanswered the call ends INTERNAL. After deadline, drain or cancellation the
// call is already answered: alive() is false and Call::stop() has fired.
template <typename Reply>
class Pending {
 public:
  Pending(std::shared_ptr<detail::UnaryCall> call, Reply* out)
      : call_(std::move(call)), out_(out) {}
  ~Pending() { answer(dropped_by_handler()); }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  [[nodiscard]] Call& call() { return call_->call(); }
  [[nodiscard]] bool alive() const { return !call_->call().stop().stop_requested(); }

  void answer(base::Result<Reply> reply) {
    if (!call_->claim()) return;
    if (reply.ok()) *out_ = std::move(reply).value();
    call_->answer(reply.status());
  }

 private:
  std::shared_ptr<detail::UnaryCall> call_;
  Reply* out_;  // gRPC's, valid until the call is claimed and answered
};

// Answers a unary call that waits for something without holding a thread: a long poll, a
// generation. `starter(std::shared_ptr<Pending<Reply>>, const Request&)` runs on the unary threads
// and returns soon; the answer comes through the Pending. The request passed is a copy that lives
// as long as the starter.
template <typename Request, typename Reply, typename Starter>
grpc::ServerUnaryReactor* run_async(Room& room, grpc::CallbackServerContext* context,
                                    const Request* in, Reply* out, Starter starter,
                                    std::optional<std::chrono::milliseconds> cap = std::nullopt) {
  auto principal = room.admit(*context, in);
  if (!principal.ok()) return detail::refuse(*context, principal.status());
  auto call = detail::open_patient(room, context, std::move(principal).value(),
                                   cap.value_or(room.options().unary_cap));
  auto pending = std::make_shared<Pending<Reply>>(call, out);
  // `pending` stays here until start() is through: letting go of it answers the call.
  detail::start(room, *call,
                [pending, request = Request(*in), starter = std::move(starter)]() mutable {
                  starter(std::move(pending), request);
                });
  return call.get();
}

}  // namespace dex::rpc
