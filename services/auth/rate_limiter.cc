#include "services/auth/rate_limiter.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace dex::auth {

namespace {
constexpr double kMinuteMs = 60'000;
}

RateLimiter::RateLimiter(uint32_t requests_per_minute, const base::Clock& clock)
    : capacity_(requests_per_minute), clock_(clock) {}

// A bucket that nobody has touched for a minute is full again, like one that is not there.
void RateLimiter::forget_full(int64_t now_ms) {
  if (static_cast<double>(now_ms - tidied_ms_) < kMinuteMs) return;
  tidied_ms_ = now_ms;
  std::erase_if(buckets_, [now_ms](const auto& entry) {
    return static_cast<double>(now_ms - entry.second.seen_ms) >= kMinuteMs;
  });
}

base::Status RateLimiter::take(const std::string& tenant) {
  if (capacity_ == 0) return {};
  const int64_t now_ms = clock_.steady_ms();
  const std::lock_guard lock(mutex_);
  forget_full(now_ms);
  Bucket& bucket = buckets_.try_emplace(tenant, Bucket{capacity_, now_ms}).first->second;
  const auto passed = static_cast<double>(now_ms - bucket.seen_ms);
  bucket.tokens = std::min(capacity_, bucket.tokens + passed * capacity_ / kMinuteMs);
  bucket.seen_ms = now_ms;
  if (bucket.tokens >= 1) {
    bucket.tokens -= 1;
    return {};
  }
  const auto wait_ms = static_cast<int64_t>(std::ceil((1 - bucket.tokens) * kMinuteMs / capacity_));
  return base::Status(base::Code::kResourceExhausted, "RATE_LIMITED",
                      "tenant '" + tenant + "' has used its " +
                          std::to_string(static_cast<uint32_t>(capacity_)) +
                          " requests a minute; the next one is taken in " +
                          std::to_string(wait_ms) + " ms")
      .with_metadata("subject", "tenant:" + tenant);
}

}  // namespace dex::auth
