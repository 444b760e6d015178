#include "worker/kernels/rms_norm.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <tuple>

#include "tests/unit/worker/kernels/tensors.h"

namespace dex::kernels {
namespace {

using testing::expect_close;
using testing::gradients;
using testing::random_tensor;

class RmsNormTest : public ::testing::TestWithParam<std::tuple<at::ScalarType, int64_t, int64_t>> {
};

TEST_P(RmsNormTest, AgreesWithPlainOpsForwardAndGradient) {
  const auto [type, rows, width] = GetParam();
  const double tolerance = type == at::kFloat ? 2e-6 : 1e-13;
  const std::vector<at::Tensor> in{random_tensor({rows, width}, 1, type) * 3,
                                   random_tensor({width}, 2, type)};
  expect_close(rms_norm(in[0], in[1], 1e-5), rms_norm_plain(in[0], in[1], 1e-5), tolerance);
  const auto fast = gradients([](const auto& v) { return rms_norm(v[0], v[1], 1e-5); }, in);
  const auto plain = gradients([](const auto& v) { return rms_norm_plain(v[0], v[1], 1e-5); }, in);
  expect_close(fast[0], plain[0], tolerance * 4, "x");
  expect_close(fast[1], plain[1], tolerance * 4, "weight");
}

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNormTest,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kDouble),
                                            ::testing::Values(1, 5, 70),
                                            ::testing::Values(3, 7, 64, 576)));

TEST(RmsNormErrorTest, NamesTheArgument) {
  const at::Tensor x = at::ones({2, 3});
  EXPECT_THROW(
      {
        try {
          rms_norm(x, at::ones({4}), 1e-5);
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "[rms_norm] weight must be [D] of x, got Float [4]");
          throw;
        }
      },
      std::runtime_error);
}

}  // namespace
}  // namespace dex::kernels
