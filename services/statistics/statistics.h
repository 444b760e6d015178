#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

// Intervals and tests for results (method.md §9, api.md §2). Pure functions of their arguments.
namespace dex::statistics {

struct Interval {
  double low = 0;
  double high = 0;
};

// x with Φ(x) = p for the standard normal distribution, 0 < p < 1.
double normal_quantile(double p);

// Wilson's score interval of a share (Wilson 1927; Brown, Cai, DasGupta 2001): with p = k/n and
// z = Φ⁻¹((1 + confidence)/2), (p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n). Holds near 0 and
// 1 and for few samples, where the textbook interval does not. n > 0, 0 ≤ successes ≤ n; neither
// need be whole: n may be an effective number of samples.
Interval wilson(double successes, double n, double confidence);

struct BootstrapOptions {
  double confidence = 0.95;
  uint64_t seed = 0;
  int32_t resamples = 2000;
};

// The percentile bootstrap (Efron, Tibshirani 1993, §13.3) of `statistic` over `units` independent
// units: each resample draws that many with replacement, and the interval cuts (1 − confidence)/2
// off each end of what `statistic` says of them. Seeded (Draw::kBootstrap): the same for the same
// seed. Two statistics of one seed see the same resamples, so a difference of two models over the
// same units is paired when `statistic` takes it inside. units ≥ 2.
Interval bootstrap(uint32_t units, const BootstrapOptions& options,
                   const std::function<double(std::span<const uint32_t> drawn)>& statistic);

// McNemar's exact test, two-sided: p = min(1, 2·P(X ≤ min(b, c))), X binomial (b + c, ½), where b
// and c count the samples that only the first and only the second model got right. 1 when the two
// never differ.
double mcnemar_exact(int64_t only_first, int64_t only_second);

}  // namespace dex::statistics
