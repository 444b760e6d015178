#include "worker/evaluate/learning_dynamics.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dex::evaluate {
namespace {

constexpr double kKeep = 0.98;

// Linear interpolation between the two nearest ranks; `sorted` is not empty.
double percentile(const std::vector<double>& sorted, double share) {
  const double rank = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(rank);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (rank - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

// The next running average; the first loss starts it.
double averaged(const std::optional<double>& before, double loss) {
  return before ? kKeep * *before + (1 - kKeep) * loss : loss;
}

}  // namespace

std::optional<double> gradient_range(std::span<const double> norms, int64_t warmup) {
  std::vector<double> sorted;
  for (size_t u = static_cast<size_t>(std::max<int64_t>(0, warmup)); u < norms.size(); ++u) {
    if (std::isfinite(norms[u])) sorted.push_back(norms[u]);
  }
  if (sorted.empty()) return std::nullopt;
  std::sort(sorted.begin(), sorted.end());
  const double median = percentile(sorted, 0.5);
  if (median == 0) return std::nullopt;
  return (percentile(sorted, 0.95) - percentile(sorted, 0.05)) / median;
}

std::optional<double> final_average_loss(std::span<const double> losses) {
  std::optional<double> average;
  for (const double loss : losses) {
    if (std::isfinite(loss)) average = averaged(average, loss);
  }
  return average;
}

std::optional<int64_t> steps_to_loss(std::span<const double> losses, double target) {
  std::optional<double> average;
  for (size_t u = 0; u < losses.size(); ++u) {
    if (!std::isfinite(losses[u])) continue;
    average = averaged(average, losses[u]);
    if (*average < target) return static_cast<int64_t>(u);
  }
  return std::nullopt;
}

}  // namespace dex::evaluate
