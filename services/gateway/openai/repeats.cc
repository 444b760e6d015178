#include "services/gateway/openai/repeats.h"

#include <algorithm>

#include "services/base/sha256.h"
#include "services/rpc/call.h"

namespace dex::gateway::openai {

namespace {

constexpr size_t kLongestKey = 64;

// The length before each part, so that no two lists of parts run into the same bytes.
std::string hash_of(const http::Request& request, std::string_view content) {
  base::Sha256 hash;
  const std::string who = request.header("authorization").value_or("");
  for (const std::string_view part : {std::string_view(who), std::string_view(request.method),
                                      std::string_view(request.path), content}) {
    hash.update(std::to_string(part.size()) + ":");
    hash.update(part);
  }
  return hash.hex();
}

bool is_repeat(const http::Request& request) {
  const std::string count = request.header("x-stainless-retry-count").value_or("0");
  return !count.empty() && count != "0" &&
         std::all_of(count.begin(), count.end(), [](char c) { return c >= '0' && c <= '9'; });
}

base::Status check_key(const std::string& key) {
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (!key.empty() && key.size() <= kLongestKey && printable) return {};
  return base::invalid_field("Idempotency-Key",
                             "Idempotency-Key must be 1 to 64 printable characters without spaces");
}

}  // namespace

void Repeats::forget_old(int64_t now_ms) {
  while (!ages_.empty() &&
         (now_ms - ages_.front().at_ms >= options_.keep_ms || ages_.size() > options_.most)) {
    const auto it = seen_.find(ages_.front().key);
    // A newer request of the same content has its own place further back.
    if (it != seen_.end() && it->second.at_ms == ages_.front().at_ms) seen_.erase(it);
    ages_.pop_front();
  }
}

base::Result<std::string> Repeats::request_id(const http::Request& request,
                                              std::string_view content) {
  if (const auto key = request.header("idempotency-key")) {
    DEX_RETURN_IF_ERROR(check_key(*key));
    return *key;
  }
  const std::string hash = hash_of(request, content);
  const int64_t now_ms = clock_.steady_ms();
  const std::lock_guard lock(mutex_);
  forget_old(now_ms);
  const auto it = seen_.find(hash);
  if (is_repeat(request) && it != seen_.end()) return it->second.request_id;
  std::string id = "http-" + rpc::new_request_id();
  seen_[hash] = {id, now_ms};
  ages_.push_back({hash, now_ms});
  return id;
}

}  // namespace dex::gateway::openai
