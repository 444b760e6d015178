#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dex::kernels {

// Attention of packed documents' rows on their own document: row i of one sees its rows max(0, i −
// window + 1) … i; window 0: all up to i.
//   q [N, H, d] · k [N, K, d] · v [N, K, d_v], rotated and normed already, fp32 or fp64; a query
//   head h reads key head h / (H/K); document i is rows bounds[i] … bounds[i+1] → [N, H, d_v],
//   contiguous
// softmax(q·kᵀ/√d)·v. Differentiable in q, k, v; keeps them, the result and one number a row and
// head. No map and no mask is made, keys and values are not repeated: scratch is half a megabyte a
// thread, whatever the length. Bits depend on the number of threads (the gradients of k and v,
// where two threads share a head), not on which thread does what.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<int64_t>& bounds, int64_t window = 0);
// Of one document.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            int64_t window = 0);

// The same in simple ops, with whole maps, differentiated by autograd: the oracle.
at::Tensor causal_attention_plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::vector<int64_t>& bounds, int64_t window = 0);

}  // namespace dex::kernels
