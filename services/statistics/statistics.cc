#include "services/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "services/statistics/quantile.h"
#include "services/statistics/random_stream.h"

namespace dex::statistics {

double normal_quantile(double p) {
  // Bisection on Φ(x) = ½·erfc(−x/√2): slow and plain, a few calls a report. Beyond ±38 Φ is 0 or 1
  // in double.
  double low = -38, high = 38;
  for (int i = 0; i < 80; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

Interval wilson(double successes, double n, double confidence) {
  const double p = successes / n;
  const double z = normal_quantile((1 + confidence) / 2), z2 = z * z;
  const double center = p + z2 / (2 * n);
  const double half = z * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  const double scale = 1 + z2 / n;
  // The ends are exact there; rounding would put them a little off.
  return {successes == 0 ? 0.0 : (center - half) / scale,
          successes == n ? 1.0 : (center + half) / scale};
}

Interval bootstrap(uint32_t units, const BootstrapOptions& options,
                   const std::function<double(std::span<const uint32_t> drawn)>& statistic) {
  RandomStream random(options.seed, Draw::kBootstrap);
  std::vector<double> values;
  std::vector<uint32_t> drawn(units);
  for (int32_t i = 0; i < options.resamples; ++i) {
    for (uint32_t& unit : drawn) unit = random.below(units);
    values.push_back(statistic(drawn));
  }
  const double tail = (1 - options.confidence) / 2;
  return {quantile_of(values, tail), quantile_of(values, 1 - tail)};
}

double mcnemar_exact(int64_t only_first, int64_t only_second) {
  const int64_t n = only_first + only_second, fewer = std::min(only_first, only_second);
  if (n == 0) return 1;
  // In logarithms: C(n, k)·2⁻ⁿ underflows from a thousand pairs on.
  double sum = 0;
  for (int64_t k = 0; k <= fewer; ++k) {
    const double log_choose = std::lgamma(static_cast<double>(n + 1)) -
                              std::lgamma(static_cast<double>(k + 1)) -
                              std::lgamma(static_cast<double>(n - k + 1));
    sum += std::exp(log_choose - static_cast<double>(n) * std::numbers::ln2);
  }
  return std::min(1.0, 2 * sum);
}

}  // namespace dex::statistics
