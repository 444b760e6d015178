#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "worker/kernels/philox.h"

// Seeded inputs and comparisons for tests of tensors.
namespace dex::testing {

// U(−1, 1), a function of `stream` alone.
inline at::Tensor random_tensor(at::IntArrayRef shape, uint64_t stream,
                                at::ScalarType type = at::kFloat) {
  at::Tensor values = at::empty(shape, at::kDouble);
  auto* data = values.mutable_data_ptr<double>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] = 2 * kernels::random_unit(3, stream, static_cast<uint64_t>(i)) - 1;
  }
  return values.to(type);
}

// |difference| ≤ tolerance · largest entry of `expected` (at least 1e-30).
inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                         const char* what = "") {
  ASSERT_TRUE(actual.defined()) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const auto a = actual.detach().to(at::kDouble), e = expected.detach().to(at::kDouble);
  if (e.numel() == 0) return;
  const double largest = std::max(e.abs().max().item<double>(), 1e-30);
  const double off = (a - e).abs().max().item<double>();
  EXPECT_LE(off, tolerance * largest)
      << what << ": off by " << off << " where the largest entry is " << largest;
}

// Σ coefficients∘output differentiated by each input; fixed pseudo-random coefficients, so that no
// gradient cancels.
inline std::vector<at::Tensor> gradients(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& op,
    const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves;
  for (const auto& input : inputs) leaves.push_back(input.detach().clone().requires_grad_());
  const at::Tensor output = op(leaves);
  const at::Tensor loss = (output * random_tensor(output.sizes(), 99, output.scalar_type())).sum();
  return torch::autograd::grad({loss}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
}

// The gradient of one input by central differences, in fp64.
inline at::Tensor numeric_gradient(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& op,
    const std::vector<at::Tensor>& inputs, size_t which) {
  constexpr double kStep = 1e-5;
  const auto loss = [&](const std::vector<at::Tensor>& values) {
    const at::Tensor output = op(values);
    return (output * random_tensor(output.sizes(), 99, output.scalar_type())).sum().item<double>();
  };
  at::Tensor gradient = at::zeros(inputs[which].sizes(), at::kDouble);
  for (int64_t i = 0; i < inputs[which].numel(); ++i) {
    std::vector<at::Tensor> values = inputs;
    const auto moved = [&](double by) {
      values[which] = inputs[which].clone();
      values[which].view({-1})[i] += by;
      return loss(values);
    };
    gradient.view({-1})[i] = (moved(kStep) - moved(-kStep)) / (2 * kStep);
  }
  return gradient;
}

}  // namespace dex::testing
