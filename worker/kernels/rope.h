#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace dex::kernels {

// cos and sin of position · theta^(−2i/d) for each of `positions` [N] int64: two tensors [N, d/2]
// fp32, rounded as transformers does it.
std::pair<at::Tensor, at::Tensor> rope_angles(const at::Tensor& positions, int64_t head_dim,
                                              double theta);

// Rotates pairs (i, i + d/2) of each head: x [N, H, d] contiguous, cos and sin [N, d/2] → [N, H,
// d]. Differentiable in x.
at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

// The same in simple ops.
at::Tensor rope_plain(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace dex::kernels
