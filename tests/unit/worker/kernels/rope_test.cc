#include "worker/kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "tests/unit/worker/kernels/tensors.h"

namespace dex::kernels {
namespace {

using testing::expect_close;
using testing::gradients;
using testing::random_tensor;

class RopeTest : public ::testing::TestWithParam<std::tuple<at::ScalarType, int64_t>> {};

TEST_P(RopeTest, AgreesWithPlainOpsForwardAndGradient) {
  const auto [type, width] = GetParam();
  const double tolerance = type == at::kFloat ? 1e-6 : 1e-14;
  std::vector<float> frequencies;
  for (int64_t i = 0; i < width / 2; ++i) frequencies.push_back(1 / static_cast<float>(1 + 3 * i));
  auto [cos, sin] = rope_angles(at::arange(21, at::kLong) * 13, frequencies);
  cos = cos.to(type);
  sin = sin.to(type);
  const std::vector<at::Tensor> in{random_tensor({21, 3, width}, 1, type)};
  expect_close(rope(in[0], cos, sin), rope_plain(in[0], cos, sin), tolerance);
  expect_close(gradients([&](const auto& v) { return rope(v[0], cos, sin); }, in)[0],
               gradients([&](const auto& v) { return rope_plain(v[0], cos, sin); }, in)[0],
               tolerance);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RopeTest,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kDouble),
                                            ::testing::Values(2, 6, 64)));

TEST(RopeAnglesTest, AreThoseOfThePosition) {
  const std::vector<float> frequencies{1.0F, 0.00316F};
  const auto [cos, sin] = rope_angles(at::tensor({0, 1, 5000}, at::kLong), frequencies);
  for (int i = 0; i < 2; ++i) {
    const double frequency = frequencies[static_cast<size_t>(i)];
    EXPECT_EQ(cos[0][i].item<float>(), 1.0F);
    EXPECT_EQ(sin[0][i].item<float>(), 0.0F);
    EXPECT_NEAR(cos[1][i].item<float>(), std::cos(frequency), 1e-6);
    EXPECT_NEAR(sin[2][i].item<float>(), std::sin(5000 * frequency),
                1e-3);  // the angle is rounded to fp32
  }
}

}  // namespace
}  // namespace dex::kernels
