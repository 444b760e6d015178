#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dex::model {

// Attention of one document's T rows on themselves: row i sees rows max(0, i − window + 1) … i;
// window 0: all up to i. q [T, H, d] · k, v [T, K, d], rotated and normed already; a query head h
// reads key head h / (H/K). No [T, T] map is made.

// softmax(q·kᵀ/√d)·v, [T, H, d]; differentiable.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            int64_t window = 0);

}  // namespace dex::model
