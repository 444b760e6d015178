#include "worker/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dex::train {

int64_t warmup_updates(double warmup_ratio, int64_t updates) {
  if (warmup_ratio <= 0) return 0;
  const auto rounded =
      static_cast<int64_t>(std::floor(warmup_ratio * static_cast<double>(updates) + 0.5));
  return std::max<int64_t>(1, rounded);
}

double learning_rate_factor(LrSchedule schedule, int64_t update, int64_t updates, int64_t warmup) {
  if (update < warmup) return static_cast<double>(update + 1) / static_cast<double>(warmup);
  if (schedule == LrSchedule::kConstant || updates <= warmup) return 1.0;
  const double done = static_cast<double>(update - warmup) / static_cast<double>(updates - warmup);
  if (schedule == LrSchedule::kLinear) return 1.0 - done;
  return 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

double learning_rate_reach(LrSchedule schedule, int64_t updates, int64_t warmup) {
  double sum = 0;
  for (int64_t update = 0; update < updates; ++update) {
    sum += learning_rate_factor(schedule, update, updates, warmup);
  }
  return sum;
}

}  // namespace dex::train
