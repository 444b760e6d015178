#include "worker/kernels/swiglu.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/unit/worker/kernels/tensors.h"

namespace dex::kernels {
namespace {

using testing::expect_close;
using testing::gradients;
using testing::random_tensor;

class SwigluTest : public ::testing::TestWithParam<std::tuple<at::ScalarType, int64_t>> {};

TEST_P(SwigluTest, AgreesWithPlainOpsForwardAndGradient) {
  const auto [type, width] = GetParam();
  const double tolerance = type == at::kFloat ? 2e-6 : 1e-13;
  const std::vector<at::Tensor> in{random_tensor({37, width}, 1, type) * 8,
                                   random_tensor({37, width}, 2, type)};
  expect_close(swiglu(in[0], in[1]), swiglu_plain(in[0], in[1]), tolerance);
  const auto fast = gradients([](const auto& v) { return swiglu(v[0], v[1]); }, in);
  const auto plain = gradients([](const auto& v) { return swiglu_plain(v[0], v[1]); }, in);
  expect_close(fast[0], plain[0], tolerance, "gate");
  expect_close(fast[1], plain[1], tolerance, "up");
}

INSTANTIATE_TEST_SUITE_P(Shapes, SwigluTest,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kDouble),
                                            ::testing::Values(1, 13, 1536)));

TEST(SwigluEdgeTest, LargeGatesSaturate) {
  const at::Tensor gate = at::tensor({-1e30, -200.0, 0.0, 200.0, 1e30}, at::kFloat).repeat({8});
  const at::Tensor y = swiglu(gate, at::ones_like(gate));
  expect_close(y, at::clamp_min(gate, 0), 1e-6);
  EXPECT_TRUE(at::isfinite(y).all().item<bool>());
}

TEST(SwigluEdgeTest, NanStaysNan) {
  const at::Tensor gate = at::full({32}, std::nan(""), at::kFloat);
  EXPECT_TRUE(at::isnan(swiglu(gate, at::ones_like(gate))).all().item<bool>());
}

}  // namespace
}  // namespace dex::kernels
