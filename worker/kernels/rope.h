#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>

namespace dex::kernels {

// cos and sin of position · frequency for each of `positions` [N] int64 and of `frequencies` [d/2]:
// two tensors [N, d/2] fp32; the angle is rounded to fp32 first, as transformers does it.
std::pair<at::Tensor, at::Tensor> rope_angles(const at::Tensor& positions,
                                              std::span<const float> frequencies);

// Rotates pairs (i, i + d/2) of each head: x [N, H, d] contiguous, cos and sin [N, d/2] → [N, H,
// d]. Differentiable in x.
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

// The same in simple ops.
at::Tensor rope_plain(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace dex::kernels
