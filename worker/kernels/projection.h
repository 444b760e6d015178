#pragma once

#include <ATen/core/Tensor.h>

namespace dex::kernels {

// A low-rank term beside a weight: scale·(x·aᵀ)·bᵀ (method.md §7). Undefined a: none.
struct LowRankTerm {
  at::Tensor x;  // [N, in], what a reads: the projection's own x, or that with dropout
  at::Tensor a;  // [r, in]
  at::Tensor b;  // [out, r]
  double scale = 0;
};

// x·weightᵀ + bias + the term: x [N, in] · weight [out, in] · bias [out], or undefined → [N, out],
// a fresh tensor that nothing has saved, so the caller may add to it in place. Differentiable in
// all of them. Keeps x only where something beside it is trained, and [N, r] for the term; computes
// gradients of what is trained alone. Products go through gemm.h.
at::Tensor projection(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                      const LowRankTerm& term = {});

// The same in simple ops.
at::Tensor projection_plain(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias = {}, const LowRankTerm& term = {});

}  // namespace dex::kernels
