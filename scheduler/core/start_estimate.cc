#include "scheduler/core/start_estimate.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace dex::core {

namespace {
constexpr double kLeastSlowness = 0.1, kMostSlowness = 10;
}  // namespace

double slowness(const std::vector<RunningJob>& running) {
  std::vector<double> ratios;
  for (const RunningJob& job : running) {
    if (job.remaining_seconds >= 0 && job.estimated_seconds > 0)
      ratios.push_back((job.elapsed_seconds + job.remaining_seconds) / job.estimated_seconds);
  }
  if (ratios.empty()) return 1;
  // Of an even number the lower one of the middle.
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>((ratios.size() - 1) / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return std::clamp(*middle, kLeastSlowness, kMostSlowness);
}

std::optional<double> starts_in_seconds(int free_slots, const std::vector<RunningJob>& running,
                                        const std::vector<double>& ahead_seconds) {
  const double slow = slowness(running);
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at;
  for (int i = 0; i < free_slots; ++i) free_at.push(0);
  for (const RunningJob& job : running) {
    const bool told = job.remaining_seconds >= 0;
    const double left =
        told ? job.remaining_seconds : job.estimated_seconds * slow - job.elapsed_seconds;
    free_at.push(std::max(0.0, left));
  }
  if (free_at.empty()) return std::nullopt;
  for (const double seconds : ahead_seconds) {
    const double at = free_at.top();
    free_at.pop();
    free_at.push(at + std::max(0.0, seconds) * slow);
  }
  return free_at.top();
}

}  // namespace dex::core
