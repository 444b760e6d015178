#pragma once

#include <grpcpp/client_context.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace dex::client {

// A grpc::ClientContext with a deadline that `stop` can cancel from another thread. `api_key`: sent
// as the bearer; empty: none.
class CallContext {
 public:
  CallContext(std::stop_token stop, std::optional<std::chrono::milliseconds> timeout,
              const std::string& api_key)
      : cancel_(std::move(stop), [this] { context_.TryCancel(); }) {
    if (timeout) context_.set_deadline(std::chrono::system_clock::now() + *timeout);
    if (!api_key.empty()) context_.AddMetadata("authorization", "Bearer " + api_key);
  }
  grpc::ClientContext& get() { return context_; }

 private:
  grpc::ClientContext context_;
  std::stop_callback<std::function<void()>> cancel_;
};

// Waits for `delay`; false when `stop` came first.
inline bool wait_unless_stopped(const std::stop_token& stop, std::chrono::milliseconds delay) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, delay, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace dex::client
