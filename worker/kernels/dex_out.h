#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dex::kernels {

// Output projection with the DEX branch inside (method.md §2.1, §3.1):
//   O'_h = O_h + s·λ·m_h·(O_h·w_d − g_h·(1/H)·Σ_h' O_h'),   y = concat_h(O'_h)·W_Oᵀ
//   o [N, H·d] · w_o [D, H·d] · w_d [d, d] shared, [H, d, d] per head or [H·d, H·d] dense ·
//   gate [H], or undefined: no mean term · lambda [] or [1] · mask [H] in [0, 1] · sign −1 or +1 →
//   [N, D]
// Differentiable in all but mask; saves only its inputs. λ = 0, mask = 0 or a zero difference give
// o·w_oᵀ bit for bit. Takes the fold (performance.md §4) from kFoldRows rows up when w_o needs a
// gradient, else the branch.
at::Tensor dex_out(const at::Tensor& o, const at::Tensor& w_o, const at::Tensor& w_d,
                   const at::Tensor& gate, const at::Tensor& lambda, const at::Tensor& mask,
                   double sign);

// Rows from which folding is cheaper than a pass over every token (performance.md §4, measured).
inline constexpr int64_t kFoldRows = 700;

// The two paths themselves, for the tests that compare them and for callers that know which one
// they want.
at::Tensor dex_out_folded(const at::Tensor& o, const at::Tensor& w_o, const at::Tensor& w_d,
                          const at::Tensor& gate, const at::Tensor& lambda, const at::Tensor& mask,
                          double sign);
at::Tensor dex_out_branch(const at::Tensor& o, const at::Tensor& w_o, const at::Tensor& w_d,
                          const at::Tensor& gate, const at::Tensor& lambda, const at::Tensor& mask,
                          double sign);

// The formula in simple ops, differentiated by autograd. Slow; the oracle of every other path.
at::Tensor dex_out_plain(const at::Tensor& o, const at::Tensor& w_o, const at::Tensor& w_d,
                         const at::Tensor& gate, const at::Tensor& lambda, const at::Tensor& mask,
                         double sign);

// The difference term D [N, H, d] of o [N, H, d], in simple ops.
at::Tensor dex_difference(const at::Tensor& o, const at::Tensor& w_d, const at::Tensor& gate);

// W_O with the branch inside (method.md §2.4), [D, H·d] in w_o's type. No gradient. Blocks that the
// branch does not reach are copied bit for bit.
at::Tensor fold_w_o(const at::Tensor& w_o, const at::Tensor& w_d, const at::Tensor& gate,
                    const at::Tensor& lambda, const at::Tensor& mask, double sign);

}  // namespace dex::kernels
