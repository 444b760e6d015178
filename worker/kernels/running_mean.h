#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dex::kernels {

// The mean over the rows of the same document up to and including the current one: Ō and V̄ of
// method.md §3.1.
//   x [N, …] fp32 or fp64 · bounds: document i is rows bounds[i] … bounds[i+1]; first 0, last N →
//   [N, …]
// Sums run row by row in x's type, as an engine that decodes adds one token after another, so a
// prompt that is cut into chunks gives the same numbers. Differentiable in x; saves only bounds.
at::Tensor running_mean(const at::Tensor& x, const std::vector<int64_t>& bounds);

// Its gradient, dx_j = Σ_{t ≥ j} dy_t/(t + 1) inside each document, t counted from the document's
// start. For ops that make the mean again in their own backward pass.
at::Tensor running_mean_backward(const at::Tensor& dy, const std::vector<int64_t>& bounds);

// The formula in simple ops, differentiated by autograd. Slow; the oracle of both.
at::Tensor running_mean_plain(const at::Tensor& x, const std::vector<int64_t>& bounds);

}  // namespace dex::kernels
