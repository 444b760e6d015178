#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "services/base/clock.h"
#include "services/base/status.h"

namespace dex::auth {

// Requests a minute of each tenant (api.md §1, limits), as a bucket of that many tokens that fills
// evenly: a burst of a whole minute's worth is fine, more waits. Each gateway counts what it sees
// itself. Thread-safe, never blocks; holds a few bytes a tenant that called within the last minute.
class RateLimiter {
 public:
  // requests_per_minute 0: no limit. The clock outlives this object.
  RateLimiter(uint32_t requests_per_minute, const base::Clock& clock);

  // Takes one request's token. RESOURCE_EXHAUSTED `RATE_LIMITED`, whose message says when there
  // will be one.
  base::Status take(const std::string& tenant);

 private:
  struct Bucket {
    double tokens;
    int64_t seen_ms;
  };
  void forget_full(int64_t now_ms);

  const double capacity_;
  const base::Clock& clock_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;  // guarded by mutex_
  int64_t tidied_ms_ = 0;                            // guarded by mutex_
};

}  // namespace dex::auth
