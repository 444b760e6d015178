#include "services/rpc/unary.h"

#include "services/rpc/status.h"

namespace dex::rpc::detail {

UnaryCall::UnaryCall(Room& room, grpc::CallbackServerContext& context, auth::Principal principal,
                     std::chrono::milliseconds cap, bool patient)
    : LiveCall(room, context, std::move(principal), cap), patient_(patient) {}

void UnaryCall::answer(const base::Status& status) {
  Finish(last_word(status));
}

// Claimed first, so that what a handler answers to the stop does not win over the reason.
void UnaryCall::end(base::Status why) {
  const auto alive = weak_from_this().lock();
  const bool answers = patient_ && claim();
  call().request_stop();
  if (answers) answer(why);
}

void UnaryCall::drain() {
  if (patient_) end(server_draining());
}

void UnaryCall::OnCancel() {
  end(client_cancelled());
}

grpc::ServerUnaryReactor* refuse(grpc::CallbackServerContext& context, const base::Status& why) {
  const grpc::Status status = refusal(context, why);
  auto* reactor = context.DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

grpc::ServerUnaryReactor* run_erased(Room& room, grpc::CallbackServerContext* context,
                                     const google::protobuf::Message* in,
                                     std::optional<std::chrono::milliseconds> cap,
                                     std::function<base::Status(Call&)> body) {
  auto principal = room.admit(*context, in);
  if (!principal.ok()) return refuse(*context, principal.status());
  auto call =
      std::make_shared<UnaryCall>(room, *context, std::move(principal).value(),
                                  cap.value_or(room.options().unary_cap), /*patient=*/false);
  call->open();
  start(room, *call, [call, body = std::move(body)] {
    // In the queue longer than the caller wants to wait: nobody would read the answer.
    const bool late = call->call().stop().stop_requested() || call->call().time_left().count() == 0;
    const base::Status status = late ? deadline_passed() : body(call->call());
    if (call->claim()) call->answer(status);
  });
  return call.get();
}

std::shared_ptr<UnaryCall> open_patient(Room& room, grpc::CallbackServerContext* context,
                                        auth::Principal principal, std::chrono::milliseconds cap) {
  auto call =
      std::make_shared<UnaryCall>(room, *context, std::move(principal), cap, /*patient=*/true);
  call->open();
  return call;
}

void start(Room& room, UnaryCall& call, std::function<void()> task) {
  if (room.unary_threads().try_post(std::move(task))) return;
  if (call.claim()) call.answer(overloaded(room.unary_threads().queued()));
}

}  // namespace dex::rpc::detail
