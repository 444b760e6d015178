#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <memory>
#include <optional>

#include "services/auth/principal.h"
#include "services/base/status.h"
#include "services/rpc/call.h"
#include "services/rpc/timer.h"

namespace dex::rpc {

class Room;

// What every kind of answered call shares: it is known to its room until it is done, ends by its
// deadline, and turns the last status into the wire's. Handlers never see it; unary.h, stream.h and
// upload.h are built on it. It keeps itself alive until gRPC says that the call is done.
class LiveCall : public std::enable_shared_from_this<LiveCall> {
 public:
  LiveCall(Room& room, grpc::CallbackServerContext& context, auth::Principal principal,
           std::optional<std::chrono::milliseconds> cap);
  virtual ~LiveCall() = default;

  Call& call() { return call_; }
  const Call& call() const { return call_; }

  // Ends the call before its answer is ready: deadline, drain, client gone. Thread-safe; may come
  // more than once, and after the end.
  virtual void end(base::Status why) = 0;
  // The server stops. Calls that end by themselves soon override this with nothing; those that are
  // still there at the end of the grace get end().
  virtual void drain();

 protected:
  void open();  // after construction: registers, arms the deadline
  void done();  // the last thing that OnDone does: this object may be gone afterwards
  grpc::Status last_word(const base::Status& status);  // trailers and details; once
  // After a failed read: the client broke off, rather than having said that it is through.
  [[nodiscard]] bool broken_off() const { return context_.IsCancelled(); }

  Room& room_;

 private:
  grpc::CallbackServerContext& context_;
  Call call_;
  std::shared_ptr<LiveCall> self_;
  std::optional<Timer::Ticket> deadline_timer_;
};

// The status of a call that is refused before it begins; sets its x-request-id.
grpc::Status refusal(grpc::CallbackServerContext& context, const base::Status& why);

// The usual ends.
base::Status deadline_passed();
base::Status client_cancelled();
base::Status server_draining();
base::Status dropped_by_handler();

}  // namespace dex::rpc
