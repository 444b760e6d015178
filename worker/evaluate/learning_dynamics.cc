#include "worker/evaluate/learning_dynamics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/evaluate/quantile.h"

namespace dex::evaluate {
namespace {

constexpr double kKeep = 0.98;

// The next running average; the first loss starts it.
double averaged(const std::optional<double>& before, double loss) {
  return before ? kKeep * *before + (1 - kKeep) * loss : loss;
}

}  // namespace

std::optional<double> gradient_range(std::span<const double> norms, int64_t warmup) {
  std::vector<double> counted;
  for (size_t u = static_cast<size_t>(std::max<int64_t>(0, warmup)); u < norms.size(); ++u) {
    if (std::isfinite(norms[u])) counted.push_back(norms[u]);
  }
  if (counted.empty()) return std::nullopt;
  const double median = quantile_of(counted, 0.5);
  if (median == 0) return std::nullopt;
  return (quantile_of(counted, 0.95) - quantile_of(counted, 0.05)) / median;
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
