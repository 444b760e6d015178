#include "services/base/clock.h"

#include <chrono>

namespace dex::base {

namespace {
template <typename TimePoint>
int64_t milliseconds(TimePoint time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}
}  // namespace

int64_t SystemClock::now_ms() const {
  return milliseconds(std::chrono::system_clock::now());
}
int64_t SystemClock::steady_ms() const {
  return milliseconds(std::chrono::steady_clock::now());
}

}  // namespace dex::base
