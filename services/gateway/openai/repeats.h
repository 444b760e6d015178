#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "services/base/clock.h"
#include "services/base/status.h"
#include "services/gateway/http/exchange.h"

namespace dex::gateway::openai {

// Which request_id a mutating POST has (api.md §1, idempotency): that of its Idempotency-Key, or,
// of a repeat that says so by `x-stainless-retry-count` ≥ 1 and sends no key, that of the newest
// request of the last 10 minutes with the same key, route and content. The scheduler keeps what a
// request_id did, so nothing is kept here but ids: also a repeat whose first call is still on its
// way has one effect.
//
// What this gateway has not seen itself it can't repeat: behind a balancer of several gateways
// clients send Idempotency-Key, or are kept on one. Thread-safe, never blocks.
class Repeats {
 public:
  struct Options {
    int64_t keep_ms = 600'000;
    size_t most = 16'384;  // ids; the oldest go first
  };
  Repeats(const base::Clock& clock, Options options) : clock_(clock), options_(options) {}

  // `content` is what must be equal: the body, or for an upload what is known of it before its
  // bytes come (the scheduler compares those). INVALID_FIELD for a key that is not 1–64 printable
  // characters.
  base::Result<std::string> request_id(const http::Request& request, std::string_view content);

 private:
  struct Seen {
    std::string request_id;
    int64_t at_ms = 0;
  };
  struct Age {
    std::string key;
    int64_t at_ms = 0;
  };
  void forget_old(int64_t now_ms);

  const base::Clock& clock_;
  const Options options_;
  std::mutex mutex_;
  std::unordered_map<std::string, Seen> seen_;  // guarded by mutex_; key: a hash of what is equal
  std::deque<Age> ages_;                        // guarded by mutex_; oldest first
};

}  // namespace dex::gateway::openai
