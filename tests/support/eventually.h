#pragma once

#include <poll.h>

#include <chrono>
#include <functional>

namespace dex::support {

// For waits that end at once unless something is broken.
inline constexpr int64_t kPatience_ms = 20'000;

// Blocks until `ready()` holds or `limit_ms` have passed; false in the second case. For conditions
// of other processes and threads that offer nothing to wait on.
inline bool eventually(const std::function<bool()>& ready, int64_t limit_ms = 60'000) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > end) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

}  // namespace dex::support
