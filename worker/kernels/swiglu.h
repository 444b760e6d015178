#pragma once

#include <ATen/core/Tensor.h>

namespace dex::kernels {

// silu(gate)·up, element by element: both [N, F] contiguous, fp32 or fp64 → [N, F]. Differentiable in both; keeps
// gate and up and recomputes silu in the backward pass. It overwrites them there with their gradients, so each
// must be a fresh tensor that nothing else reads after this call.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

// The same in simple ops.
at::Tensor swiglu_plain(const at::Tensor& gate, const at::Tensor& up);

}  // namespace dex::kernels
