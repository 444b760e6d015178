#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "services/auth/authenticator.h"
#include "services/base/status.h"
#include "services/base/thread_pool.h"
#include "services/rpc/timer.h"

namespace dex::rpc {

class LiveCall;

// Where the calls of a server are answered: its threads, its caller check, the calls that are open.
// A process makes one, gives it to its service classes, and they answer through rpc::run,
// run_async, stream and upload (unary.h, stream.h, upload.h). Outlives the Server that uses it.
// Thread-safe.
class Room {
 public:
  struct Options {
    // Handlers of rpc::run.
    base::ThreadPool::Options unary{8, 1024, "rpc"};
    // Thousands of watches come back at once when a scheduler has been away; each takes a thread
    // only until it has what is stored.
    base::ThreadPool::Options streams{32, 8192, "rpc-stream"};
    // Uploads, and streams whose starter waits for its client (StreamOptions): each has a thread
    // for as long as the client takes, so slow ones wait for each other here and never keep a watch
    // from starting.
    base::ThreadPool::Options transfers{32, 1024, "rpc-transfer"};
    std::chrono::milliseconds unary_cap{60'000};       // a call's longest time, unless it says more
    std::chrono::milliseconds heartbeat{15'000};       // of a watch in which nothing happens
    std::chrono::milliseconds idle_upload{30'000};     // between two messages of an upload
    std::chrono::milliseconds stalled_reader{30'000};  // a download whose client takes nothing
    // Who may call, and as whom; null: everybody, as the operator (auth/authenticator.h). What it
    // borrows outlives the room.
    std::shared_ptr<const auth::Authenticator> callers;
    // Calls come from gateways, which have asked already: the caller is whom their metadata name
    // (headers.h), and `callers` is not asked.
    bool behind_gateway = false;
  };
  explicit Room(const Options& options);
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // From now on calls are refused with `SERVER_DRAINING`; open streams, uploads and asynchronous
  // calls end with it; unary handlers finish by themselves. Returns at once; may be called twice.
  void drain();
  [[nodiscard]] bool draining() const { return draining_; }
  // Ends every open call with `SERVER_DRAINING`; handlers on threads are asked to stop.
  void cut();
  // Waits until nothing runs on this room's threads, where a handler may still be at work for a
  // call that has ended. For whoever destroys what handlers use, once the servers have stopped.
  void close();

  [[nodiscard]] const Options& options() const { return options_; }

  // For the reactors of this folder.
  // Whether a call may start at all: not draining, authenticated, no unknown field (`request` may
  // be null: checked later, message by message).
  base::Result<auth::Principal> admit(const grpc::CallbackServerContext& context,
                                      const google::protobuf::Message* request);
  // Who calls, by the value of a header `authorization`: for doors other than gRPC.
  [[nodiscard]] base::Result<auth::Principal> authenticate(
      std::optional<std::string_view> authorization) const;
  base::ThreadPool& unary_threads() { return unary_; }
  base::ThreadPool& stream_threads() { return streams_; }
  base::ThreadPool& transfer_threads() { return transfers_; }
  Timer& timer() { return timer_; }
  void add(const std::shared_ptr<LiveCall>& call);
  void remove(LiveCall* call);

 private:
  [[nodiscard]] std::vector<std::shared_ptr<LiveCall>> open() const;

  const Options options_;
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;
  std::unordered_map<LiveCall*, std::weak_ptr<LiveCall>> open_;  // guarded by mutex_
  Timer timer_;
  base::ThreadPool unary_;
  base::ThreadPool streams_;
  base::ThreadPool transfers_;
};

// RESOURCE_EXHAUSTED for a call whose executor has no room left.
base::Status overloaded(size_t waiting);

}  // namespace dex::rpc
