#pragma once

#include <cstdint>

namespace dex::base {

// The one way to learn the time, passed in so that tests can turn it by hand. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual int64_t now_ms() const = 0;     // wall clock, Unix milliseconds; may jump
  [[nodiscard]] virtual int64_t steady_ms() const = 0;  // monotonic; for durations and deadlines
  // Since `steady_ms()` returned `begin_ms`.
  [[nodiscard]] double seconds_since(int64_t begin_ms) const {
    return static_cast<double>(steady_ms() - begin_ms) / 1000.0;
  }
};

// The system's clocks.
class SystemClock final : public Clock {
 public:
  [[nodiscard]] int64_t now_ms() const override;
  [[nodiscard]] int64_t steady_ms() const override;
};

}  // namespace dex::base
