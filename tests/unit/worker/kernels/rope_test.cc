#include "worker/kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

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
  auto [cos, sin] = rope_angles(at::arange(21, at::kLong) * 13, width, 10000);
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
  const auto [cos, sin] = rope_angles(at::tensor({0, 1, 5000}, at::kLong), 4, 100000);
  for (int i = 0; i < 2; ++i) {
    const double frequency = std::pow(100000.0, -2.0 * i / 4);
    EXPECT_EQ(cos[0][i].item<float>(), 1.0F);
    EXPECT_EQ(sin[0][i].item<float>(), 0.0F);
    EXPECT_NEAR(cos[1][i].item<float>(), std::cos(frequency), 1e-6);
    EXPECT_NEAR(sin[2][i].item<float>(), std::sin(5000 * frequency),
                1e-3);  // the angle is rounded to fp32
  }
}

}  // namespace
}  // namespace dex::kernels
