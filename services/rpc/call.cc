#include "services/rpc/call.h"

#include <algorithm>
#include <array>
#include <random>

namespace dex::rpc {

namespace {

constexpr size_t kLongestRequestId = 64;

bool usable(const std::string& id) {
  return !id.empty() && id.size() <= kLongestRequestId &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

std::multimap<std::string, std::string> copy(
    const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
  std::multimap<std::string, std::string> headers;
  for (const auto& [name, value] : metadata) {
    headers.emplace(std::string(name.data(), name.size()), std::string(value.data(), value.size()));
  }
  return headers;
}

}  // namespace

Call::Call(const grpc::CallbackServerContext& context, auth::Principal principal,
           std::string request_id, std::chrono::system_clock::time_point deadline)
    : headers_(copy(context.client_metadata())),
      principal_(std::move(principal)),
      request_id_(std::move(request_id)),
      deadline_(deadline) {}

std::chrono::milliseconds Call::time_left() const {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline_ - std::chrono::system_clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

std::optional<std::string> Call::header(std::string_view name) const {
  const auto it = headers_.find(std::string(name));
  if (it == headers_.end()) return std::nullopt;
  return it->second;
}

void Call::add_trailer(std::string name, std::string value) {
  const std::lock_guard lock(mutex_);
  trailers_.emplace_back(std::move(name), std::move(value));
}

void Call::send_trailers(grpc::CallbackServerContext& context) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, value] : trailers_) {
    context.AddTrailingMetadata(std::move(name), std::move(value));
  }
  trailers_.clear();
}

std::optional<std::string> header_of(const grpc::ServerContextBase& context,
                                     std::string_view name) {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find(grpc::string_ref(name.data(), name.size()));
  if (it == metadata.end()) return std::nullopt;
  return std::string(it->second.data(), it->second.size());
}

// Only has to be unlike the others in a log; it decides nothing, so it needs no passed-in
// generator.
std::string new_request_id() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::random_device random;
  std::string id = "req-";
  for (int i = 0; i < 4; ++i) {
    auto bits = random();
    for (int digit = 0; digit < 6; ++digit, bits >>= 4) id += kDigits[bits & 15U];
  }
  return id;
}

std::string request_id_of(const grpc::ServerContextBase& context) {
  auto sent = header_of(context, kRequestIdHeader);
  return sent && usable(*sent) ? std::move(*sent) : new_request_id();
}

}  // namespace dex::rpc
