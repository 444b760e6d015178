#pragma once

#include <ATen/core/Tensor.h>

namespace dex::kernels {

// silu(gate)·up, element by element: both [N, F], fp32 or fp64 → [N, F]. Differentiable in both;
// keeps gate and up and recomputes silu in the backward pass.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// The same in simple ops.
at::Tensor swiglu_plain(const at::Tensor& gate, const at::Tensor& up);

}  // namespace dex::kernels
