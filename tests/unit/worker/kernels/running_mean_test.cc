#include "worker/kernels/running_mean.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/unit/worker/kernels/tensors.h"

namespace dex::kernels {
namespace {

using at::Tensor;
using testing::expect_close;
using testing::gradients;
using testing::numeric_gradient;
using testing::random_tensor;

const std::vector<int64_t> kBounds{0, 5, 6, 13};

std::function<Tensor(const std::vector<Tensor>&)> over(Tensor (*op)(const Tensor&,
                                                                    const std::vector<int64_t>&)) {
  return [op](const std::vector<Tensor>& v) { return op(v[0], kBounds); };
}

// method.md §11.4.
TEST(RunningMeanTest, WorkedNumbers) {
  const Tensor v = at::tensor({1.0, 2.0, 3.0, -1.0, -1.0, 5.0}, at::kDouble).view({3, 2});
  expect_close(running_mean(v, {0, 3}),
               at::tensor({1.0, 2.0, 2.0, 0.5, 1.0, 2.0}, at::kDouble).view({3, 2}), 1e-12);
}

TEST(RunningMeanTest, RestartsAtDocumentsAndAgreesWithPlainOps) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const double tolerance = type == at::kFloat ? 1e-6 : 1e-14;
    for (const auto& shape : {std::vector<int64_t>{13, 4, 6}, {13, 3}, {13, 9, 64}}) {
      const std::vector<Tensor> in{random_tensor(shape, 1, type)};
      expect_close(running_mean(in[0], kBounds), running_mean_plain(in[0], kBounds), tolerance);
      expect_close(gradients(over(running_mean), in)[0], gradients(over(running_mean_plain), in)[0],
                   tolerance);
      for (const int64_t first : {0, 5, 6})  // a document's first row is its own mean
        EXPECT_TRUE(running_mean(in[0], kBounds)[first].equal(in[0][first]));
    }
  }
}

TEST(RunningMeanTest, GradientAgreesWithFiniteDifferences) {
  const std::vector<Tensor> in{random_tensor({13, 2, 3}, 2, at::kDouble)};
  expect_close(gradients(over(running_mean), in)[0], numeric_gradient(over(running_mean), in, 0),
               1e-8);
}

// What a decode relies on: going on from the sum of the first rows gives the same bits.
TEST(RunningMeanTest, SumsRunRowByRow) {
  const Tensor x = random_tensor({40, 70}, 3);
  const Tensor mean = running_mean(x, {0, 40});
  Tensor sum = at::zeros({70});
  for (int64_t t = 0; t < 40; ++t) {
    sum += x[t];
    EXPECT_TRUE(mean[t].equal(sum / static_cast<float>(t + 1))) << t;
  }
}

TEST(RunningMeanTest, BadBoundsAreRefused) {
  const Tensor x = at::zeros({4, 2});
  for (const auto& bounds : {std::vector<int64_t>{0, 3}, {0, 2, 2, 4}, {1, 4}, {4}, {}}) {
    EXPECT_THROW(running_mean(x, bounds), std::runtime_error);
  }
}

}  // namespace
}  // namespace dex::kernels
