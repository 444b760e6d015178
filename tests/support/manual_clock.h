#pragma once

#include <atomic>

#include "services/base/clock.h"

namespace dex::support {

// A clock that moves only when told. Wall and monotonic time move together; set_now_ms makes the
// wall clock jump alone. Thread-safe.
class ManualClock final : public base::Clock {
 public:
  explicit ManualClock(int64_t now_ms = 1'764'000'000'000) : now_ms_(now_ms) {}
  [[nodiscard]] int64_t now_ms() const override { return now_ms_; }
  [[nodiscard]] int64_t steady_ms() const override { return steady_ms_; }
  void advance_ms(int64_t ms) {
    now_ms_ += ms;
    steady_ms_ += ms;
  }
  void set_now_ms(int64_t now_ms) { now_ms_ = now_ms; }

 private:
  std::atomic<int64_t> now_ms_;
  std::atomic<int64_t> steady_ms_ = 1'000;
};

}  // namespace dex::support
