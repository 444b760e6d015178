#include "worker/kernels/row_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/unit/worker/kernels_serve/targets.h"

namespace dex::kernels {
namespace {

TEST(RowOps, RmsNormMatchesItsFormula) {
  for (const int64_t n : {1, 7, 64, 575}) {
    const auto x = random_floats(n, 1), weight = random_floats(n, 2);
    const auto halves = upper_halves(weight);
    double mean = 0;
    for (const float v : x) mean += double{v} * v / static_cast<double>(n);
    for_each_target([&](const char* target) {
      std::vector<float> y(n), z(n);
      rms_norm_row(x.data(), {weight.data(), Number::kF32, 1, n}, 1e-5F, y.data());
      rms_norm_row(x.data(), {halves.data(), Number::kBf16, 1, n}, 1e-5F, z.data());
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_NEAR(y[i], x[i] / std::sqrt(mean + 1e-5) * weight[i], 2e-6) << target << " " << n;
        EXPECT_NEAR(z[i], y[i], std::abs(y[i]) / 128 + 1e-6) << target << " " << n;
      }
    });
  }
}

TEST(RowOps, SiluMulMatchesItsFormula) {
  const auto gate = random_floats(101, 3), up = random_floats(101, 4);
  for_each_target([&](const char* target) {
    auto got = gate;
    got[0] = 90;  // exp overflows nowhere
    got[1] = -90;
    silu_mul(got.data(), up.data(), 101);
    EXPECT_NEAR(got[0], 90 * up[0], 1e-4) << target;
    EXPECT_NEAR(got[1], 0, 1e-30) << target;
    for (int i = 2; i < 101; ++i)
      EXPECT_NEAR(got[i], gate[i] / (1 + std::exp(-gate[i])) * up[i], 1e-6) << target;
  });
}

TEST(RowOps, RopeTurnsPairsHalfAHeadApart) {
  std::vector<float> head = {1, 2, 3, 4};
  const float cos[] = {0.0F, 1.0F}, sin[] = {1.0F, 0.0F};
  rope_head(head.data(), 4, cos, sin);
  EXPECT_EQ(head, (std::vector<float>{-3, 2, 1, 4}));
}

TEST(RowOps, LogSumExpAndArgMaxOfALargeRow) {
  auto x = random_floats(49152, 5);
  x[40000] = 12.5F;
  x[40001] = 12.5F;  // a tie: the lower index
  double sum = 0;
  for (const float v : x) sum += std::exp(double{v});
  for_each_target([&](const char* target) {
    EXPECT_NEAR(log_sum_exp(x), std::log(sum), 1e-6) << target;
    EXPECT_EQ(arg_max(x), 40000) << target;
    auto p = x;
    const double total = exp_scaled(p, 12.5F, 0.5F);
    EXPECT_NEAR(p[40000], 1.0, 1e-6) << target;
    EXPECT_NEAR(p[7], std::exp((x[7] - 12.5) * 0.5), 1e-7) << target;
    double again = 0;
    for (const float v : p) again += v;
    EXPECT_NEAR(total, again, 1e-5 * again) << target;
  });
}

TEST(RowOps, NotANumberNeverWinsAndShowsInTheSum) {
  const std::vector<float> x = {1, std::nanf(""), 3, 2};
  for_each_target([&](const char* target) {
    EXPECT_EQ(arg_max(x), 2) << target;
    EXPECT_FALSE(std::isfinite(log_sum_exp(x))) << target;
    const std::vector<float> none(20, std::nanf(""));
    EXPECT_EQ(arg_max(none), 0) << target;
  });
}

TEST(RowOps, WidensARowOfEitherNumber) {
  const auto floats = random_floats(12, 6);
  const auto halves = upper_halves(floats);
  std::vector<float> y(4);
  widen_row({floats.data(), Number::kF32, 3, 4}, 1, y.data());
  EXPECT_EQ(y, std::vector<float>(floats.begin() + 4, floats.begin() + 8));
  widen_row({halves.data(), Number::kBf16, 3, 4}, 2, y.data());
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(y[i], floats[8 + i], 1.0 / 128);
}

}  // namespace
}  // namespace dex::kernels
