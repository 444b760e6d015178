#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "services/base/status.h"
#include "services/rpc/live_call.h"
#include "services/rpc/room.h"

namespace dex::rpc {

template <typename Message>
struct StreamOptions {
  size_t queue = 256;  // messages that wait for a slow client
  // Makes what is sent when nothing else was for Room::Options::heartbeat; empty = no heartbeats.
  std::function<Message()> heartbeat;
  std::optional<std::chrono::milliseconds> cap;  // none = as long as the client listens
  // The starter writes everything itself (ServerStream::write), so it may have to wait for a slow
  // client: it runs on the room's transfer threads.
  bool waits_for_client = false;
};

namespace detail {

// The reactor of a server stream: one write in flight, the rest in a bounded queue.
template <typename Message>
class StreamCall : public grpc::ServerWriteReactor<Message>, public LiveCall {
 public:
  StreamCall(Room& room, grpc::CallbackServerContext& context, auth::Principal principal,
             StreamOptions<Message> options)
      : LiveCall(room, context, std::move(principal), options.cap), options_(std::move(options)) {}

  void open() {
    LiveCall::open();
    if (options_.heartbeat) arm(std::chrono::steady_clock::now() + room_.options().heartbeat);
  }

  bool push(Message message) {
    const std::lock_guard lock(mutex_);
    if (last_) return false;
    if (queue_.size() >= options_.queue) {
      const auto lag = base::unavailable(
          "WATCH_LAGGED", "the client is more than " + std::to_string(options_.queue) +
                              " messages behind; connect again from the last one seen");
      close_locked(lag, /*flush=*/false);
      return false;
    }
    enqueue_locked(std::move(message));
    return true;
  }

  bool write(Message message) {
    std::unique_lock lock(mutex_);
    const auto patience = std::min(call().time_left(), room_.options().stalled_reader);
    const bool room_left =
        space_.wait_for(lock, patience, [this] { return last_ || queue_.size() < options_.queue; });
    if (last_) return false;
    if (!room_left) {
      close_locked(deadline_passed(), /*flush=*/false);
      return false;
    }
    enqueue_locked(std::move(message));
    return true;
  }

  void finish(const base::Status& status) {
    const std::lock_guard lock(mutex_);
    close_locked(status, /*flush=*/true);
  }

  void end(base::Status why) override {
    call().request_stop();
    const std::lock_guard lock(mutex_);
    close_locked(why, /*flush=*/false);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    last_write_ = std::chrono::steady_clock::now();
    if (!ok) {
      queue_.clear();
      close_locked(client_cancelled(), /*flush=*/false);
    } else {
      proceed_locked();
    }
    space_.notify_all();
  }

  void OnCancel() override { end(client_cancelled()); }
  void OnDone() override { done(); }

 private:
  void enqueue_locked(Message message) {
    queue_.push_back(std::move(message));
    proceed_locked();
  }

  // The first reason stands. Without flush what waits is dropped; a write in flight always ends
  // first.
  void close_locked(const base::Status& status, bool flush) {
    if (!flush) queue_.clear();
    if (!last_) last_ = status;
    space_.notify_all();
    proceed_locked();
  }

  void proceed_locked() {
    if (writing_ || finished_) return;
    if (!queue_.empty()) {
      current_ = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
      grpc::WriteOptions write;
      if (!queue_.empty()) write.set_buffer_hint();  // the next one follows at once
      this->StartWrite(&current_, write);
      return;
    }
    if (last_) {
      finished_ = true;
      this->Finish(last_word(*last_));
    }
  }

  void arm(std::chrono::steady_clock::time_point when) {
    room_.timer().at(when, [weak = weak_from_this()] {
      if (const auto live = weak.lock()) static_cast<StreamCall*>(live.get())->tick();
    });
  }

  void tick() {
    const auto period = room_.options().heartbeat;
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    if (last_) return;
    if (!writing_ && queue_.empty() && now - last_write_ >= period) {
      enqueue_locked(options_.heartbeat());
      last_write_ = now;
    }
    arm(std::max(now + std::chrono::milliseconds(1), last_write_ + period));
  }

  const StreamOptions<Message> options_;
  std::mutex mutex_;
  std::condition_variable space_;
  std::deque<Message> queue_;         // guarded by mutex_, as all below
  std::optional<base::Status> last_;  // set once: nothing is taken any more
  bool writing_ = false;
  bool finished_ = false;
  Message current_;
  std::chrono::steady_clock::time_point last_write_ = std::chrono::steady_clock::now();
};

// The reactor of a stream that is refused before it starts.
template <typename Message>
class RefusedStream : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedStream(const grpc::Status& why) { this->Finish(why); }
  void OnDone() override { delete this; }
};

}  // namespace detail

// The server's end of a stream to a client. Thread-safe. Whoever holds it may send; when the last
// holder lets go without finish() the call ends INTERNAL.
template <typename Message>
class ServerStream {
 public:
  explicit ServerStream(std::shared_ptr<detail::StreamCall<Message>> call)
      : call_(std::move(call)) {}
  ~ServerStream() { call_->finish(dropped_by_handler()); }
  ServerStream(const ServerStream&) = delete;
  ServerStream& operator=(const ServerStream&) = delete;

  [[nodiscard]] Call& call() { return call_->call(); }

  // Queues a message; never blocks. False when the call is over (client gone, drained, finished),
  // and when the queue is full: then the call ends `WATCH_LAGGED`, so memory stays bounded.
  bool push(Message message) { return call_->push(std::move(message)); }

  // The same for producers that can wait, such as downloads: blocks while the queue is full, at
  // most Room::Options::stalled_reader, then the call ends DEADLINE_EXCEEDED. False: stop
  // producing.
  bool write(Message message) { return call_->write(std::move(message)); }

  // Sends what is queued, then the status. Later pushes are refused; the first finish counts.
  void finish(const base::Status& status) { call_->finish(status); }

 private:
  std::shared_ptr<detail::StreamCall<Message>> call_;
};

// Answers a server-streaming call. `starter(std::shared_ptr<ServerStream<Message>>, const
// Request&)` runs on the room's stream threads. It may hand the stream to others and return
// (watches, token streams), or, with `waits_for_client`, write everything itself (downloads). The
// request passed is a copy that lives as long as the starter.
template <typename Message, typename Request, typename Starter>
grpc::ServerWriteReactor<Message>* stream(Room& room, grpc::CallbackServerContext* context,
                                          const Request* in, Starter starter,
                                          StreamOptions<Message> options = {}) {
  auto principal = room.admit(*context, in);
  if (!principal.ok()) {
    return new detail::RefusedStream<Message>(refusal(*context, principal.status()));
  }
  base::ThreadPool& threads =
      options.waits_for_client ? room.transfer_threads() : room.stream_threads();
  auto call = std::make_shared<detail::StreamCall<Message>>(
      room, *context, std::move(principal).value(), std::move(options));
  call->open();
  auto handle = std::make_shared<ServerStream<Message>>(call);
  std::function<void()> task = [handle, request = Request(*in),
                                starter = std::move(starter)]() mutable {
    starter(std::move(handle), request);
  };
  if (!threads.try_post(std::move(task))) call->finish(overloaded(threads.queued()));
  return call.get();
}

}  // namespace dex::rpc
