#include "services/statistics/quantile.h"

#include <algorithm>
#include <cstddef>

namespace dex::statistics {

double quantile_of(std::vector<double> values, double q) {
  std::ranges::sort(values);
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
}

}  // namespace dex::statistics
