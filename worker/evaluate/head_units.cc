#include "worker/evaluate/head_units.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace dex::evaluate {

std::vector<double> zscore(std::span<const double> scores) {
  const double count = static_cast<double>(scores.size());
  const double mean = std::accumulate(scores.begin(), scores.end(), 0.0) / count;
  double squares = 0;
  for (const double score : scores) squares += (score - mean) * (score - mean);
  const double deviation = std::sqrt(squares / count);
  std::vector<double> out;
  for (const double score : scores) out.push_back(deviation > 0 ? (score - mean) / deviation : 0.0);
  return out;
}

std::vector<double> quantile(std::span<const double> scores) {
  std::vector<double> out(scores.size(), 0.0);
  if (scores.size() < 2) return out;
  for (size_t h = 0; h < scores.size(); ++h) {
    const auto lower = std::count_if(scores.begin(), scores.end(),
                                     [&](double other) { return other < scores[h]; });
    out[h] = static_cast<double>(lower) / static_cast<double>(scores.size() - 1);
  }
  return out;
}

std::vector<double> entropy_in_unit(std::span<const double> nats,
                                    std::span<const double> normalized, EntropyUnit unit) {
  switch (unit) {
    case EntropyUnit::kNats:
      return {nats.begin(), nats.end()};
    case EntropyUnit::kNormalized:
      return {normalized.begin(), normalized.end()};
    case EntropyUnit::kZscore:
      return zscore(nats);
    case EntropyUnit::kQuantile:
      return quantile(nats);
  }
  return {};
}

std::vector<double> contribution_in_unit(std::span<const double> importance,
                                         ContributionUnit unit) {
  double scale = 0;
  for (const double value : importance) {
    if (unit == ContributionUnit::kL2norm) scale += value * value;
    if (unit == ContributionUnit::kShare) scale += value;
    if (unit == ContributionUnit::kRelmax) scale = std::max(scale, value);
  }
  if (unit == ContributionUnit::kL2norm) scale = std::sqrt(scale);
  std::vector<double> out;
  for (const double value : importance) out.push_back(scale > 0 ? value / scale : 0.0);
  return out;
}

}  // namespace dex::evaluate
