#include "services/statistics/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "services/statistics/philox.h"
#include "services/statistics/quantile.h"
#include "services/statistics/random_stream.h"

namespace dex::statistics {
namespace {

double mean(const std::vector<double>& values, std::span<const uint32_t> drawn) {
  double sum = 0;
  for (const uint32_t i : drawn) sum += values[i];
  return sum / static_cast<double>(drawn.size());
}

TEST(RandomStreamTest, WordIsThePhiloxWordOfSeedUseAndIndex) {
  RandomStream stream(0x123456789ABCDEF0, Draw::kNeedles, 7);
  for (uint64_t i = 0; i < 9; ++i) {
    const uint64_t number = (static_cast<uint64_t>(Draw::kNeedles) << 48) + 7;
    EXPECT_EQ(stream.next(), random_word(0x123456789ABCDEF0, number, i));
  }
}

TEST(RandomStreamTest, BelowIsEvenAndPermutationsHoldEachNumberOnce) {
  RandomStream stream(5, Draw::kShots);
  std::vector<int> seen(7, 0);
  for (int i = 0; i < 70'000; ++i) ++seen[stream.below(7)];
  for (const int count : seen) EXPECT_NEAR(count, 10'000, 400);  // 4 standard deviations
  auto order = stream.permutation(100);
  EXPECT_NE(order[0], 0U);
  std::ranges::sort(order);
  std::vector<uint32_t> all(100);
  std::iota(all.begin(), all.end(), 0U);
  EXPECT_EQ(order, all);
}

TEST(StatisticsTest, NormalQuantileIsScipys) {  // scipy 1.17.1: norm.ppf
  EXPECT_NEAR(normal_quantile(.975), 1.959963984540054, 1e-12);
  EXPECT_NEAR(normal_quantile(.95), 1.6448536269514722, 1e-12);
  EXPECT_NEAR(normal_quantile(.5), 0, 1e-12);
  EXPECT_NEAR(normal_quantile(.001), -3.090232306167813, 1e-12);
}

TEST(StatisticsTest, WilsonIsScipys) {  // binomtest(k, n).proportion_ci(c, method="wilson")
  struct Case {
    int64_t k, n;
    double confidence, low, high;
  };
  for (const Case& c :
       {Case{7, 20, .95, 0.1811918241010821, 0.5671457233147637},
        Case{0, 10, .95, 0, 0.27753279986288926}, Case{10, 10, .95, 0.7224672001371109, 1},
        Case{1, 2, .9, 0.12086631942227366, 0.8791336805777263},
        Case{480, 1000, .99, 0.4395711016911704, 0.5206925449049659},
        Case{3, 3, .5, 0.8683227801023338, 1}}) {
    const Interval found = wilson(c.k, c.n, c.confidence);
    EXPECT_NEAR(found.low, c.low, 1e-12) << c.k << " of " << c.n;
    EXPECT_NEAR(found.high, c.high, 1e-12) << c.k << " of " << c.n;
  }
}

TEST(StatisticsTest, McNemarIsTheBinomialTest) {
  EXPECT_NEAR(mcnemar_exact(1, 5), 0.21875, 1e-12);  // by hand: 2·(1 + 6)/64
  EXPECT_NEAR(mcnemar_exact(6, 0), 0.03125, 1e-12);  // 2/64
  EXPECT_EQ(mcnemar_exact(0, 0), 1);
  EXPECT_EQ(mcnemar_exact(4, 4), 1);
  // scipy 1.17.1: binomtest(min(b, c), b + c, 0.5).pvalue
  EXPECT_NEAR(mcnemar_exact(10, 25), 0.016673847800120715, 1e-12);
  EXPECT_NEAR(mcnemar_exact(380, 300), 0.0024248687076998837, 1e-10);
  EXPECT_GT(mcnemar_exact(4000, 4000), 0.99);  // no underflow
}

TEST(StatisticsTest, QuantileIsNumpys) {
  const std::vector<double> values = {3, 1, 4, 1, 5, 9, 2, 6};
  EXPECT_DOUBLE_EQ(quantile_of(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile_of(values, .3), 2.1);
  EXPECT_DOUBLE_EQ(quantile_of(values, .5), 3.5);
  EXPECT_DOUBLE_EQ(quantile_of(values, .975), 8.475);
  EXPECT_DOUBLE_EQ(quantile_of(values, 1), 9);
}

TEST(StatisticsTest, BootstrapCutsTheTrueResamplingDistribution) {
  // All 27 resamples of three values: the 10 % and 90 % points of their means are 1/3 and 11/3.
  const std::vector<double> values = {0, 1, 5};
  const Interval found = bootstrap(3, {.confidence = .8, .seed = 3, .resamples = 20'000},
                                   [&](auto drawn) { return mean(values, drawn); });
  EXPECT_DOUBLE_EQ(found.low, 1.0 / 3);
  EXPECT_DOUBLE_EQ(found.high, 11.0 / 3);
}

TEST(StatisticsTest, BootstrapIsAFunctionOfItsSeed) {
  std::vector<double> values;
  for (int i = 0; i < 40; ++i) values.push_back(i * i % 37);
  const auto interval = [&](uint64_t seed) {
    return bootstrap(40, {.seed = seed}, [&](auto drawn) { return mean(values, drawn); });
  };
  EXPECT_EQ(interval(1).low, interval(1).low);
  EXPECT_NE(interval(1).low, interval(2).low);
}

// The share of experiments whose interval holds the truth, with binomial noise of ± 3 deviations.
TEST(StatisticsTest, WilsonCoversTheTruthAsOftenAsItSays) {
  RandomStream random(11, Draw::kQueries);
  const auto covered = [&](uint32_t percent, int64_t n) {
    int hits = 0;
    for (int trial = 0; trial < 4000; ++trial) {
      int64_t k = 0;
      for (int64_t i = 0; i < n; ++i) k += random.below(100) < percent ? 1 : 0;
      const Interval interval = wilson(k, n, .95);
      hits += interval.low <= percent / 100.0 && percent / 100.0 <= interval.high ? 1 : 0;
    }
    return hits / 4000.0;
  };
  // Discrete, so not exactly 0.95 each; Brown et al. give 0.93–0.97 for these.
  EXPECT_NEAR(covered(50, 100), .95, .02);
  EXPECT_NEAR(covered(10, 50), .95, .035);
  EXPECT_NEAR(covered(90, 200), .95, .02);
}

TEST(StatisticsTest, BootstrapCoversTheTruthAlmostAsOftenAsItSays) {
  RandomStream random(12, Draw::kQueries);
  int mean_hits = 0, paired_hits = 0;
  constexpr int kTrials = 500;
  for (int trial = 0; trial < kTrials; ++trial) {
    // Uniform on [0, 1) with mean ½; a second one that is 0.1 higher, and strongly paired with it.
    std::vector<double> a, b;
    for (int i = 0; i < 60; ++i) {
      a.push_back(random.next() * 0x1p-32);
      b.push_back(a.back() + 0.2 * (random.next() * 0x1p-32));
    }
    const BootstrapOptions options{.seed = static_cast<uint64_t>(trial), .resamples = 400};
    const Interval of_mean = bootstrap(60, options, [&](auto drawn) { return mean(a, drawn); });
    const Interval of_difference =
        bootstrap(60, options, [&](auto drawn) { return mean(b, drawn) - mean(a, drawn); });
    mean_hits += of_mean.low <= .5 && .5 <= of_mean.high ? 1 : 0;
    paired_hits += of_difference.low <= .1 && .1 <= of_difference.high ? 1 : 0;
    // Pairing pays: the difference is known far better than either mean.
    EXPECT_LT(of_difference.high - of_difference.low, (of_mean.high - of_mean.low) / 2);
  }
  EXPECT_NEAR(mean_hits / double{kTrials}, .94, .035);
  EXPECT_NEAR(paired_hits / double{kTrials}, .94, .035);
}

}  // namespace
}  // namespace dex::statistics
