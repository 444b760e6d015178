#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "dex/v1/events.pb.h"

namespace dex::cli {

// A run's training loss update by update, from its job's events in their order. What a later
// attempt or a roll-back did again replaces what was there.
class LossCurve {
 public:
  void take(const v1::FineTuningEvent& event);
  // Nats a token, one an update from the first on; NaN: the update was skipped. Empty: the events
  // don't have every update, as of runs of more than 4,000, whose events have every n-th.
  [[nodiscard]] std::vector<double> losses() const;

 private:
  void forget_after(uint32_t step);

  std::map<uint32_t, double> losses_;  // after so many updates, from 1
  uint32_t skipped_ = 0;               // the latest that the watchdog left out; 0: none
};

// Steps to a loss (method.md §4.6); losses that are not finite are left out.

// The last value of the running average e ← 0.98·e + 0.02·loss, e starting at the first loss.
// None: no loss.
std::optional<double> final_average_loss(std::span<const double> losses);

// The first update u (from 0) whose running average lies below `target`; runs are compared with
// target = final_average_loss of the kvo_only run. None: never.
std::optional<int64_t> steps_to_loss(std::span<const double> losses, double target);

}  // namespace dex::cli
