// Worked numbers of method.md §11.2 and §11.7 around the output projection: what the base alone
// says, the gradient of a head's gate, and what the classic mistake of folding would give.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/unit/worker/kernels/tensors.h"
#include "worker/kernels/dex_out.h"

namespace dex::kernels {
namespace {

class WorkedOutputTest : public ::testing::Test {
 protected:
  static at::Tensor numbers(const std::vector<double>& values, at::IntArrayRef shape) {
    return at::tensor(values, at::kDouble).view(shape);
  }
  // Of logits y/4 and target 0.
  static at::Tensor loss_of(const at::Tensor& y) {
    return at::cross_entropy_loss(y / 4, at::zeros({1}, at::kLong));
  }
  static void expect_numbers(const at::Tensor& found, const std::vector<double>& expected,
                             double tolerance) {
    ASSERT_EQ(found.numel(), static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(found.flatten()[static_cast<int64_t>(i)].item<double>(), expected[i], tolerance)
          << i;
    }
  }

  at::Tensor o = numbers({1, 2, 3, -1}, {1, 4});
  at::Tensor w_d = numbers({0.5, -1, 2, 0.25}, {2, 2});
  at::Tensor w_o = numbers({1, 0, 2, -1, 0.5, -1, 0, 3, 2, 1, -1, 0.5}, {3, 4});
  at::Tensor lambda = at::full({1}, 0.3, at::kDouble);
  at::Tensor nobody = at::zeros({2}, at::kDouble), second = numbers({0, 1}, {2});
  const std::array<decltype(&dex_out), 4> paths{dex_out, dex_out_folded, dex_out_branch,
                                                dex_out_plain};
};

TEST_F(WorkedOutputTest, TheBaseIsWhatNoSelectedHeadGives) {  // §11.2, y(base)
  for (const auto path : paths)
    expect_numbers(path(o, w_o, w_d, {}, lambda, nobody, -1), {8, -4.5, 0.5}, 1e-12);
}

// §11.2: W_O·(I − λ·w_d) without the transpose is the fold of the transposed map.
TEST_F(WorkedOutputTest, AForgottenTransposeIsSeen) {
  const at::Tensor wrong = fold_w_o(w_o, w_d.t().contiguous(), {}, lambda, second, -1);
  expect_numbers(o.mm(wrong.t()), {8.225, -9.675, 0.3875}, 1e-12);
  const at::Tensor right = fold_w_o(w_o, w_d, {}, lambda, second, -1);
  expect_numbers(o.mm(right.t()), {7.325, -1.575, 0.8375}, 1e-12);
}

// §11.7, first half: gates ξ = 1 on the heads' outputs without a branch.
TEST_F(WorkedOutputTest, GatesHaveTheGradientOfImportance) {
  for (const auto path : paths) {
    const at::Tensor gates = at::ones({2}, at::kDouble).requires_grad_();
    const at::Tensor gated = (o.view({1, 2, 2}) * gates.view({1, 2, 1})).view({1, 4});
    const at::Tensor loss = loss_of(path(gated, w_o, w_d, {}, lambda, nobody, -1));
    EXPECT_NEAR(loss.item<double>(), 0.180062, 5e-7);
    loss.backward();
    expect_numbers(gates.grad(), {0.073128, -0.427965}, 5e-7);
    expect_numbers(gates.grad().abs(), {0.073128, 0.427965}, 5e-7);  // I, of one sample
    expect_numbers(gates.grad().abs() / gates.grad().norm(), {0.168433, 0.985713}, 5e-7);
  }
}

// §11.7, second half: G_1 = ∂loss/∂O'_1 of case 1, and §2.1's ∂O_1 = G_1 − λ·G_1·w_dᵀ.
TEST_F(WorkedOutputTest, TheOutputOfAHeadHasItsGradient) {
  for (const auto path : paths) {
    const at::Tensor changed = numbers({1, 2, 3.15, -0.025}, {1, 4}).requires_grad_();
    loss_of(path(changed, w_o, w_d, {}, lambda, nobody, -1)).backward();
    expect_numbers(changed.grad().slice(1, 2), {-0.154856, 0.139508}, 1e-6);

    const at::Tensor input = o.clone().requires_grad_();
    const at::Tensor loss = loss_of(path(input, w_o, w_d, {}, lambda, second, -1));
    EXPECT_NEAR(loss.item<double>(), 0.266659, 5e-7);
    loss.backward();
    expect_numbers(input.grad().slice(1, 0, 2), {0.027477, 0.017130}, 1e-6);  // not selected: G_0
    expect_numbers(input.grad().slice(1, 2), {-0.089776, 0.221958}, 1e-6);
  }
}

}  // namespace
}  // namespace dex::kernels
