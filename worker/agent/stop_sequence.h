#pragma once

#include <cstdint>

#include "worker/agent/outcome.h"

namespace dex::agent {

// When a trainer that must stop gets which push (jobs.md §4):
//   cancel, lost   stop frame and SIGTERM at once, SIGKILL after kill_grace
//   pause, drain   stop frame "with checkpoint" at once, SIGTERM after stop_grace, SIGKILL after
//                  kill_grace more
// A graver order starts its own sequence. Pure: the time is given. Not thread-safe.
class StopSequence {
 public:
  struct Options {
    int64_t stop_grace_ms = 300'000;
    int64_t kill_grace_ms = 10'000;
  };
  // What is due; each is true once in a sequence.
  struct Due {
    bool frame = false;
    bool sigterm = false;
    bool sigkill = false;
    int64_t grace_ms = 0;  // for the stop frame: time until SIGKILL
  };

  explicit StopSequence(const Options& options) : options_(options) {}
  Due due(Order order, int64_t now_ms);

 private:
  const Options options_;
  Order order_ = Order::kNone;
  int64_t sigterm_at_ms_ = 0;
  int64_t sigkill_at_ms_ = 0;
  bool sigterm_sent_ = false;
  bool sigkill_sent_ = false;
};

}  // namespace dex::agent
