#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/auth/principal.h"

namespace dex::rpc {

inline constexpr const char* kRequestIdHeader = "x-request-id";

// What a handler may know about the call it answers. Made by Room once the caller is authenticated;
// lives as long as somebody holds the call, also after its end. May be used from any thread.
class Call {
 public:
  Call(const grpc::CallbackServerContext& context, auth::Principal principal,
       std::string request_id, std::chrono::system_clock::time_point deadline);

  [[nodiscard]] const auth::Principal& principal() const { return principal_; }
  [[nodiscard]] const std::string& request_id() const { return request_id_; }

  // When the answer is no longer wanted: the client's deadline or the server's cap, the earlier
  // one. Every wait of a handler ends by then.
  [[nodiscard]] std::chrono::system_clock::time_point deadline() const { return deadline_; }
  [[nodiscard]] std::chrono::milliseconds time_left() const;  // never negative

  // Stop is requested when the client goes away or the deadline passes, for streams and uploads
  // also when the server drains. A handler that takes long looks at it.
  [[nodiscard]] std::stop_token stop() const { return stop_.get_token(); }

  // A header of the request; the first one if there are several. `name` is lower-case.
  [[nodiscard]] std::optional<std::string> header(std::string_view name) const;

  // Sent as trailing metadata with the answer, e.g. {"dex-replayed", "true"}. Names are lower-case.
  void add_trailer(std::string name, std::string value);

  // For Room and its reactors.
  void request_stop() { stop_.request_stop(); }
  void send_trailers(grpc::CallbackServerContext& context);  // once, just before Finish

 private:
  const std::multimap<std::string, std::string> headers_;  // a copy: gRPC's ends with the call
  const auth::Principal principal_;
  const std::string request_id_;
  const std::chrono::system_clock::time_point deadline_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::string>> trailers_;  // guarded by mutex_
};

// The x-request-id of the request if it has a usable one (1–64 printable characters), else a new
// one.
std::string request_id_of(const grpc::ServerContextBase& context);

std::string new_request_id();  // "req-" and 24 random hexadecimal digits

// A header of a call's client metadata.
std::optional<std::string> header_of(const grpc::ServerContextBase& context, std::string_view name);

}  // namespace dex::rpc
