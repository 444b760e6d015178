#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace dex::kernels {

// Output projection with a branch that reads the tokens before (method.md §3.1). Means run over the
// document so far (running_mean.h), so nothing here can be folded into w_o:
//   prefix_mean, v undefined  D_h = P(O)_h − g_h·Ō_h
//   uniform_map, v given      D_h = g_h·V̄_kv(h)         (no P: w_d undefined)
//   O'_h = O_h + s·λ·m_h·D_h,   y = concat_h(O'_h)·W_Oᵀ
//   o [N, H·d] · v [N, K, d] · w_o [D, H·d] · w_d as in head_map.h · gate [H] · lambda [] or [1] ·
//   mask [H] in [0, 1] · sign −1 or +1 · bounds as in running_mean.h → [N, D]
// Differentiable in all but mask; saves only its inputs and makes the means again in the backward
// pass. λ = 0, mask = 0 or D = 0 give o·w_oᵀ bit for bit.
at::Tensor dex_out_mean(const at::Tensor& o, const at::Tensor& v, const at::Tensor& w_o,
                        const at::Tensor& w_d, const at::Tensor& gate, const at::Tensor& lambda,
                        const at::Tensor& mask, double sign, const std::vector<int64_t>& bounds);

// The difference term D [N, H, d] of o [N, H, d], in simple ops and running_mean.
at::Tensor mean_difference(const at::Tensor& o, const at::Tensor& v, const at::Tensor& w_d,
                           const at::Tensor& gate, const std::vector<int64_t>& bounds);

// The formula in simple ops only, differentiated by autograd. Slow; the oracle.
at::Tensor dex_out_mean_plain(const at::Tensor& o, const at::Tensor& v, const at::Tensor& w_o,
                              const at::Tensor& w_d, const at::Tensor& gate,
                              const at::Tensor& lambda, const at::Tensor& mask, double sign,
                              const std::vector<int64_t>& bounds);

}  // namespace dex::kernels
