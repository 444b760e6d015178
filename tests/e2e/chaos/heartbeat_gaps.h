#pragma once

#include <algorithm>
#include <cstdint>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "services/base/clock.h"
#include "services/base/signals.h"
#include "tests/support/chaos_platform.h"

namespace dex::support {

// The longest time between two heartbeats of a worker, by the time that the store notes of each,
// from the first look until finish(). Redis lives meanwhile.
class HeartbeatGaps {
 public:
  HeartbeatGaps(ChaosPlatform& platform, std::string worker)
      : platform_(platform),
        worker_(std::move(worker)),
        thread_([this](const std::stop_token& stop) { look(stop); }) {}

  // In s; a silence that still goes on counts too.
  double finish() {
    thread_.request_stop();
    thread_.join();
    const int64_t silent_ms = base::SystemClock().now_ms() - last_ms_;
    return static_cast<double>(std::max(longest_ms_, silent_ms)) / 1000;
  }

 private:
  static constexpr int64_t kLook_ms = 20;  // beats that come closer than this are one to us

  void look(const std::stop_token& stop) {
    last_ms_ = beat_ms();
    while (!base::wait_for_stop(stop, kLook_ms)) {
      const int64_t now_ms = beat_ms();
      longest_ms_ = std::max(longest_ms_, now_ms - last_ms_);
      last_ms_ = now_ms;
    }
  }
  // Of its newest heartbeat. A worker that the store does not know any more is as silent as one
  // that has never been there.
  int64_t beat_ms() {
    return platform_.redis().call({"ZSCORE", "dex:{s0}:workers", worker_}).as_int();
  }

  ChaosPlatform& platform_;
  const std::string worker_;
  int64_t last_ms_ = 0, longest_ms_ = 0;  // of the thread, until it is joined
  std::jthread thread_;
};

}  // namespace dex::support
