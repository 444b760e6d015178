#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <thread>

#include "services/base/fd.h"

namespace dex::base {

// SIGTERM and SIGINT as something to wait for; SIGPIPE ignored (a closed connection would otherwise
// end the process). Make one first in main, before any other thread: threads inherit the block of
// these signals, and so only this object receives them. Thread-safe.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Stops at the first signal.
  [[nodiscard]] std::stop_token token() const { return first_.get_token(); }
  // Stops at the second: the user does not want to wait for a clean end.
  [[nodiscard]] std::stop_token urgent() const { return second_.get_token(); }
  // Waits for the first signal; false when timeout_ms (negative: none) passed without one.
  bool wait(int64_t timeout_ms) const;
  // As if a signal had come, e.g. because a listener failed.
  void request() { first_.request_stop(); }

 private:
  void run(const std::stop_token& stop);

  Fd signals_;
  Fd wake_;
  mutable std::stop_source first_;
  mutable std::stop_source second_;
  std::jthread thread_;
};

// Waits until the token stops; false when timeout_ms (negative: none) passed before.
bool wait_for_stop(const std::stop_token& token, int64_t timeout_ms);

}  // namespace dex::base
