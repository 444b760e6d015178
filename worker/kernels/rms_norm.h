#pragma once

#include <ATen/core/Tensor.h>

namespace dex::kernels {

// y = x / sqrt(mean(x²) + eps) · weight, row by row: x [N, D] contiguous, weight [D] → [N, D]; fp32
// or fp64. Differentiable in x and weight; saves x, weight and one number a row.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

// The same in simple ops.
at::Tensor rms_norm_plain(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace dex::kernels
