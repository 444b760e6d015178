#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "services/base/status.h"
#include "services/rpc/live_call.h"
#include "services/rpc/room.h"
#include "services/rpc/strictness.h"

namespace dex::rpc {

namespace detail {

// The reactor of a client stream. Reads one message ahead: gRPC's flow control bounds the rest.
template <typename Request>
class UploadCall : public grpc::ServerReadReactor<Request>, public LiveCall {
 public:
  using LiveCall::LiveCall;

  void open() {
    LiveCall::open();
    this->StartRead(&incoming_);
  }

  base::Result<std::optional<Request>> next() {
    std::unique_lock lock(mutex_);
    const auto patience = std::min(call().time_left(), room_.options().idle_upload);
    const bool came = news_.wait_for(lock, patience, [this] { return full_ || eof_ || ended_; });
    if (ended_) return *ended_;
    if (!came) {
      return base::Status(base::Code::kDeadlineExceeded, "DEADLINE",
                          "no data came for " +
                              std::to_string(room_.options().idle_upload.count() / 1000) +
                              " s; an upload may be idle no longer");
    }
    if (!full_) return std::optional<Request>();
    Request message = std::move(incoming_);
    incoming_.Clear();
    full_ = false;
    this->StartRead(&incoming_);
    lock.unlock();
    DEX_RETURN_IF_ERROR(check_known_fields(message));
    return std::optional<Request>(std::move(message));
  }

  void answer(const base::Status& status) { this->Finish(last_word(status)); }
  // Why the call was over before its answer; nothing: it was not.
  std::optional<base::Status> ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  void end(base::Status why) override {
    call().request_stop();
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = why;
    news_.notify_all();
  }

  void OnReadDone(bool ok) override {
    if (!ok && broken_off()) return end(client_cancelled());  // never a whole upload
    const std::lock_guard lock(mutex_);
    (ok ? full_ : eof_) = true;
    news_.notify_all();
  }
  void OnCancel() override { end(client_cancelled()); }
  void OnDone() override { done(); }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  Request incoming_;   // gRPC's while full_ and eof_ are false
  bool full_ = false;  // guarded by mutex_, as all below
  bool eof_ = false;
  std::optional<base::Status> ended_;  // why next() gives no more
};

template <typename Request>
class RefusedUpload : public grpc::ServerReadReactor<Request> {
 public:
  explicit RefusedUpload(const grpc::Status& why) { this->Finish(why); }
  void OnDone() override { delete this; }
};

}  // namespace detail

// What a client streams in, seen by the one handler that reads it.
template <typename Request>
class Upload {
 public:
  explicit Upload(detail::UploadCall<Request>& call) : call_(call) {}

  // The next message; nullopt after the client's last one. Blocks at most
  // Room::Options::idle_upload. Fails when the client left, the call's time is over, the server
  // drains (`SERVER_DRAINING`), the client sent nothing for too long, or a message has unknown
  // fields. After a failure: return it.
  base::Result<std::optional<Request>> next() { return call_.next(); }

 private:
  detail::UploadCall<Request>& call_;
};

// What a client streams in, and the answer that somebody still owes. One handler reads; the answer
// may come from any thread, once; what comes later is dropped. If it is destroyed unanswered the
// call ends INTERNAL. alive() is false once deadline, drain or cancellation have ended the call;
// then any answer only says so.
template <typename Request, typename Reply>
class PendingUpload {
 public:
  PendingUpload(std::shared_ptr<detail::UploadCall<Request>> call, Reply* out)
      : call_(std::move(call)), out_(out) {}
  ~PendingUpload() { answer(dropped_by_handler()); }
  PendingUpload(const PendingUpload&) = delete;
  PendingUpload& operator=(const PendingUpload&) = delete;

  [[nodiscard]] Call& call() { return call_->call(); }
  [[nodiscard]] bool alive() const { return !call_->call().stop().stop_requested(); }
  // As Upload::next().
  base::Result<std::optional<Request>> next() { return call_->next(); }

  void answer(base::Result<Reply> reply) {
    if (answered_.exchange(true)) return;
    if (const auto ended = call_->ended()) return call_->answer(*ended);
    if (reply.ok()) *out_ = std::move(reply).value();
    call_->answer(reply.status());
  }

 private:
  std::shared_ptr<detail::UploadCall<Request>> call_;
  Reply* out_;  // gRPC's, valid until the call is answered
  std::atomic<bool> answered_{false};
};

// Answers a client-streaming call. `handler(Call&, Upload<Request>&)` returns base::Result<Reply>;
// it runs on the room's transfer threads and may return before it has read everything.
template <typename Request, typename Reply, typename Handler>
grpc::ServerReadReactor<Request>* upload(
    Room& room, grpc::CallbackServerContext* context, Reply* out, Handler handler,
    std::optional<std::chrono::milliseconds> cap = std::nullopt) {
  auto principal = room.admit(*context, nullptr);
  if (!principal.ok()) {
    return new detail::RefusedUpload<Request>(refusal(*context, principal.status()));
  }
  auto call = std::make_shared<detail::UploadCall<Request>>(room, *context,
                                                            std::move(principal).value(), cap);
  call->open();
  std::function<void()> task = [call, out, handler = std::move(handler)]() mutable {
    Upload<Request> reader(*call);
    base::Result<Reply> reply = handler(call->call(), reader);
    if (reply.ok()) *out = std::move(reply).value();
    call->answer(reply.status());
  };
  if (!room.transfer_threads().try_post(std::move(task))) {
    call->answer(overloaded(room.transfer_threads().queued()));
  }
  return call.get();
}

// The same for an answer that comes long after the last message, without holding a thread until
// then. `starter(std::shared_ptr<PendingUpload<Request, Reply>>)` runs on the room's transfer
// threads; it reads what it needs and returns soon after.
template <typename Request, typename Reply, typename Starter>
grpc::ServerReadReactor<Request>* upload_async(
    Room& room, grpc::CallbackServerContext* context, Reply* out, Starter starter,
    std::optional<std::chrono::milliseconds> cap = std::nullopt) {
  auto principal = room.admit(*context, nullptr);
  if (!principal.ok()) {
    return new detail::RefusedUpload<Request>(refusal(*context, principal.status()));
  }
  auto call = std::make_shared<detail::UploadCall<Request>>(room, *context,
                                                            std::move(principal).value(), cap);
  call->open();
  auto pending = std::make_shared<PendingUpload<Request, Reply>>(call, out);
  // `pending` stays here until it is posted: letting go of it answers the call.
  std::function<void()> task = [pending, starter = std::move(starter)]() mutable {
    starter(std::move(pending));
  };
  if (!room.transfer_threads().try_post(std::move(task))) {
    pending->answer(overloaded(room.transfer_threads().queued()));
  }
  return call.get();
}

}  // namespace dex::rpc
