#include "worker/evaluate/learning_dynamics.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/worker/train/tiny_model.h"
#include "worker/evaluate/hessian.h"
#include "worker/evaluate/loss_curvature.h"

namespace dex::evaluate {
namespace {

using at::Tensor;

// A symmetric matrix with these eigenvalues, in a random basis.
Tensor with_eigenvalues(const std::vector<double>& values) {
  at::manual_seed(10);
  const auto n = static_cast<int64_t>(values.size());
  const Tensor basis = std::get<0>(at::linalg_qr(at::randn({n, n}, at::kDouble)));
  return basis.mm(at::diag(at::tensor(values))).mm(basis.t());
}

// method.md §4.6, §10 item 19: L = ½xᵀAx.
TEST(HessianTest, OfAQuadraticIsItsDominantEigenvalueWithItsSign) {
  for (const double dominant : {7.5, -7.5}) {
    const Tensor a = with_eigenvalues({dominant, 3, -2, 1, 0.5, 0, -0.1, 2});
    const Tensor theta = at::randn({8}, at::kDouble);
    const auto found = dominant_hessian_eigenvalue([&](const Tensor& x) { return a.mv(x); }, theta);
    EXPECT_TRUE(found.converged);
    EXPECT_NEAR(found.value, dominant, 1e-3);
    EXPECT_EQ(found.epsilon, 0.01);  // exact at once
    EXPECT_LE(found.iterations, 21);
  }
}

// L = Σ cosh-like: a third derivative that ε = 0.01 along the vector is too coarse for.
TEST(HessianTest, HalvesTheStepUntilTwoAgree) {
  const double steep = 300;
  const Tensor theta = at::zeros({3}, at::kDouble);
  const auto gradient = [&](const Tensor& x) {  // of L = cosh(steep·x_0)/steep² + x_1² / 4
    Tensor out = at::zeros({3}, at::kDouble);
    out[0] = (x[0] * steep).sinh() / steep;
    out[1] = x[1] / 2;
    return out;
  };
  const auto found = dominant_hessian_eigenvalue(gradient, theta);
  EXPECT_TRUE(found.converged);
  EXPECT_LT(found.epsilon, 0.01);
  EXPECT_NEAR(found.value, 1, 0.03);
}

TEST(HessianTest, SaysWhenItDoesNotSettle) {
  const Tensor a = with_eigenvalues({4, -4, 1, 0.5});
  const auto found = dominant_hessian_eigenvalue([&](const Tensor& x) { return a.mv(x); },
                                                 at::zeros({4}, at::kDouble));
  EXPECT_LE(std::abs(found.value), 4 + 1e-9);
  const auto flat = dominant_hessian_eigenvalue([](const Tensor& x) { return at::ones_like(x); },
                                                at::zeros({4}, at::kDouble));
  EXPECT_EQ(flat.value, 0);
  EXPECT_THAT(
      [] {
        dominant_hessian_eigenvalue([](const Tensor& x) { return x / 0; },
                                    at::zeros({4}, at::kDouble));
      },
      ::testing::ThrowsMessage<std::runtime_error>(::testing::HasSubstr("not finite")));
}

// Of a model: the eigenvalue that a dense Hessian has, over the few parameters of a branch alone.
TEST(LossCurvatureTest, IsTheDominantEigenvalueOfTheDenseHessian) {
  at::set_num_threads(1);
  auto config = train::testing::tiny_config();
  const auto weights = train::testing::tiny_weights(config);
  const model::Llama llama(config, weights);
  model::DexOptions options;
  options.train = model::Train::kDexOnly;
  options.w_d_init = model::BranchInit::kLinear;
  options.lambda.schedule = model::Schedule::kConstant;
  options.lambda.value = 0.8;
  const auto adaptation =
      model::initial_adaptation(options, config, weights, {{0, 1, 2, 3}, {0, 1, 2, 3}}, 1);
  const auto row = train::testing::tiny_rows(1, 40)[0];
  const std::vector<float> ones(row.size(), 1.0F);
  const std::vector<Document> documents{{row, ones}};
  kernels::LinearCrossEntropy cross_entropy;
  const auto found = measure_loss_curvature(llama, weights, adaptation, documents, cross_entropy);
  EXPECT_EQ(found.parameters, 2 * 64);  // w_d of two layers

  // Central differences of the gradient along each axis, as a matrix of its own.
  model::Adaptation moved = adaptation;
  std::vector<Tensor> leaves;
  for (const auto& each : model::trainables(moved)) {
    leaves.push_back(each.tensor->clone().requires_grad_(true));
    *each.tensor = leaves.back();
  }
  const auto batch = supervise(documents);
  const auto gradient = [&](size_t leaf, int64_t index, double by) {
    {
      const at::NoGradGuard no_grad;
      leaves[leaf].view({-1})[index] += by;
    }
    for (Tensor& each : leaves) each.mutable_grad() = Tensor();
    cross_entropy
        .loss(llama.hidden(batch.batch, moved), llama.lm_head(moved), batch.targets,
              batch.weights.div(batch.weight))
        .backward();
    const at::NoGradGuard no_grad;
    leaves[leaf].view({-1})[index] -= by;
    return at::cat({leaves[0].grad().flatten(), leaves[1].grad().flatten()}).to(at::kDouble);
  };
  std::vector<Tensor> rows;
  for (const size_t leaf : {0, 1}) {
    for (int64_t i = 0; i < 64; ++i)
      rows.push_back((gradient(leaf, i, 1e-2) - gradient(leaf, i, -1e-2)) / 2e-2);
  }
  const Tensor hessian = at::stack(rows);
  const Tensor values = at::linalg_eigvalsh((hessian + hessian.t()) / 2);
  const double dominant = values[values.abs().argmax().item<int64_t>()].item<double>();
  EXPECT_NEAR(found.documents[0].value, dominant, 0.02 * std::abs(dominant));
  EXPECT_EQ(found.negative_share, dominant < 0 ? 1 : 0);
}

TEST(LearningDynamicsTest, GradientRangeIsTakenAfterWarmUp) {
  std::vector<double> norms{900, 800};  // warm-up
  for (int i = 0; i <= 100; ++i) norms.push_back(1 + 0.01 * i);
  norms.push_back(std::nan(""));  // a skipped update
  EXPECT_NEAR(*gradient_range(norms, 2), 0.9 / 1.5, 1e-12);
  EXPECT_FALSE(gradient_range(norms, 200).has_value());
}

}  // namespace
}  // namespace dex::evaluate
