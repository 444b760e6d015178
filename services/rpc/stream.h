#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
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

// The reactor of a server stream: one write in flight, the rest in a bounded queue. A message that
// waits in thousands of queues is there once.
template <typename Message>
class StreamCall : public grpc::ServerWriteReactor<Message>, public LiveCall {
 public:
  using Shared = std::shared_ptr<const Message>;

  StreamCall(Room& room, grpc::CallbackServerContext& context, auth::Principal principal,
             StreamOptions<Message> options)
      : LiveCall(room, context, std::move(principal), options.cap), options_(std::move(options)) {}

  void open() {
    LiveCall::open();
    if (options_.heartbeat) arm(std::chrono::steady_clock::now() + room_.options().heartbeat);
  }

  bool push(Shared message) {
    const std::lock_guard lock(mutex_);
    if (last_) return false;
    if (queue_.size() >= options_.queue) {
      close_locked(lagged(options_.queue), /*flush=*/false);
      return false;
    }
    enqueue_locked(std::move(message));
    return true;
  }

  size_t room() {
    const std::lock_guard lock(mutex_);
    const size_t half = std::max<size_t>(1, options_.queue / 2);
    return last_ || queue_.size() >= half ? 0 : half - queue_.size();
  }

  void when_room(std::function<void()> then) {
    {
      const std::lock_guard lock(mutex_);
      if (last_) return;
      if (queue_.size() > low_water()) {
        resume_ = std::move(then);
        resume_since_ = std::chrono::steady_clock::now();
        if (!reader_watched_) watch_reader_locked();
        return;
      }
    }
    resume(then);
  }

  bool write(Shared message) {
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

  // The reason first, then the stop, then the word to the client: what a producer answers to the
  // stop does not win over the reason, and whoever hears of the end finds the stop fired.
  void end(base::Status why) override {
    const auto alive = weak_from_this().lock();
    {
      const std::lock_guard lock(mutex_);
      queue_.clear();
      if (!last_) last_ = std::move(why);
      space_.notify_all();
    }
    call().request_stop();
    const std::lock_guard lock(mutex_);
    proceed_locked();
  }

  void OnWriteDone(bool ok) override {
    std::function<void()> then;
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      current_.reset();
      last_write_ = std::chrono::steady_clock::now();
      if (!ok) {
        queue_.clear();
        close_locked(client_cancelled(), /*flush=*/false);
      } else {
        proceed_locked();
      }
      space_.notify_all();
      if (!last_ && queue_.size() <= low_water()) then = std::exchange(resume_, nullptr);
    }
    if (then) resume(then);
  }

  void OnCancel() override { end(client_cancelled()); }
  void OnDone() override {
    // It may hold the last handle of this call, whose end takes the lock: so it goes behind it.
    std::function<void()> dropped;
    {
      const std::lock_guard lock(mutex_);
      dropped = std::exchange(resume_, nullptr);
    }
    done();
  }

 private:
  static base::Status lagged(size_t messages) {
    return base::unavailable("WATCH_LAGGED",
                             "the client is more than " + std::to_string(messages) +
                                 " messages behind; connect again from the last one seen");
  }

  // A producer that waits goes on in batches, not message by message.
  [[nodiscard]] size_t low_water() const { return options_.queue / 4; }

  // Without the lock: `then` may hold the last handle. It stays with the caller, since letting go
  // of it ends the call as well.
  void resume(const std::function<void()>& then) {
    if (!room_.stream_threads().try_post(then)) finish(overloaded(room_.stream_threads().queued()));
  }

  // A reader that takes nothing while a producer waits for it is not waited for for ever.
  void watch_reader_locked() {
    reader_watched_ = true;
    const auto due = std::max(last_write_, resume_since_) + room_.options().stalled_reader;
    room_.timer().at(due, [weak = weak_from_this()] {
      if (const auto live = weak.lock()) static_cast<StreamCall*>(live.get())->check_reader();
    });
  }

  void check_reader() {
    const std::lock_guard lock(mutex_);
    reader_watched_ = false;
    if (last_ || !resume_) return;
    const auto since = std::max(last_write_, resume_since_);
    const bool stalled = std::chrono::steady_clock::now() - since >= room_.options().stalled_reader;
    if (stalled) return close_locked(lagged(queue_.size()), /*flush=*/false);
    watch_reader_locked();
  }

  void enqueue_locked(Shared message) {
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
      this->StartWrite(current_.get(), write);
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
      enqueue_locked(std::make_shared<Message>(options_.heartbeat()));
      last_write_ = now;
    }
    arm(std::max(now + std::chrono::milliseconds(1), last_write_ + period));
  }

  const StreamOptions<Message> options_;
  std::mutex mutex_;
  std::condition_variable space_;
  std::deque<Shared> queue_;          // guarded by mutex_, as all below
  std::optional<base::Status> last_;  // set once: nothing is taken any more
  bool writing_ = false;
  bool finished_ = false;
  Shared current_;  // being written
  std::chrono::steady_clock::time_point last_write_ = std::chrono::steady_clock::now();
  std::function<void()> resume_;  // the producer that waits for room
  std::chrono::steady_clock::time_point resume_since_;
  bool reader_watched_ = false;  // the timer has a check_reader()
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
  bool push(Message message) { return push(std::make_shared<Message>(std::move(message))); }
  // The same with a message that other streams send too.
  bool push(std::shared_ptr<const Message> message) { return call_->push(std::move(message)); }

  // The same for producers that can wait, such as downloads: blocks while the queue is full, at
  // most Room::Options::stalled_reader, then the call ends DEADLINE_EXCEEDED. False: stop
  // producing.
  bool write(Message message) {
    return call_->write(std::make_shared<Message>(std::move(message)));
  }

  // For producers of what lies stored, which could fill any queue: how many messages to push now,
  // with half of the queue left for news. 0: none, or the call is over.
  [[nodiscard]] size_t room() { return call_->room(); }
  // Runs `then` once, on the room's stream threads, when the client has taken most of what waits:
  // so that no thread waits for it. Never, when the call is over by then; a client that takes
  // nothing for Room::Options::stalled_reader meanwhile ends `WATCH_LAGGED`. One at a time.
  void when_room(std::function<void()> then) { call_->when_room(std::move(then)); }

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
    if (handle->call().stop().stop_requested()) return;  // it ended while it waited for a thread
    starter(std::move(handle), request);
  };
  if (!threads.try_post(std::move(task))) call->finish(overloaded(threads.queued()));
  return call.get();
}

}  // namespace dex::rpc
