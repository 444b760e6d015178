#include "services/data/token_statistics.h"

#include <cmath>

namespace dex::data {

int64_t LengthDistribution::quantile(double q) const {
  const auto wanted = static_cast<int64_t>(std::ceil(q * static_cast<double>(rows_)));
  int64_t seen = 0;
  for (const auto& [length, count] : counts_) {
    seen += count;
    if (seen >= wanted) return length;
  }
  return max();
}

std::vector<LengthDistribution::Bucket> LengthDistribution::histogram() const {
  std::vector<Bucket> buckets;
  for (const auto& [length, count] : counts_) {
    while (buckets.empty() || buckets.back().upper < length) {
      buckets.push_back({buckets.empty() ? 16 : buckets.back().upper * 2, 0});
    }
    buckets.back().rows += count;
  }
  return buckets;
}

}  // namespace dex::data
