#include "worker/evaluate/learning_dynamics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/evaluate/quantile.h"

namespace dex::evaluate {

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

}  // namespace dex::evaluate
