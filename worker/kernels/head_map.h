#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dex::kernels {

// Products of head outputs x [N, H, d] with the map of a linear projection (method.md §3.2):
//   w_d [d, d] shared · [H, d, d] per head · [H·d, H·d] dense, over all heads together
// What the paths of the DEX branch share (dex_out.cc, dex_out_mean.cc); simple ops, differentiable.

// P(x)_h: x_h·w_d, x_h·w_d[h], or block h of concat(x)·w_d → [N, H, d].
at::Tensor times_map(const at::Tensor& x, const at::Tensor& w_d);

// The gradient of a map of w_d's shape, given that of P(x): Σ_n x_hᵀ·y_h over heads, a product a
// head, or one of all.
at::Tensor map_gradient(const at::Tensor& x, const at::Tensor& y, const at::Tensor& w_d);

// A map of a head by itself, shared or per head: for these the two below have one fused pass each.
[[nodiscard]] bool is_head_map(const at::Tensor& w_d, int64_t heads, int64_t width);
// x_h + F_h·P(x)_h, F [1, H, 1]: where F is 0, x_h bit for bit and nothing computed. w_d is a head
// map; x contiguous. No gradient.
at::Tensor plus_map(const at::Tensor& x, const at::Tensor& w_d, const at::Tensor& strength);
at::Tensor plus_map_plain(const at::Tensor& x, const at::Tensor& w_d, const at::Tensor& strength);
// Σ_n x_hᵀ·y_h [H, d, d] of the heads that `mask` [H] does not leave out with 0; the others' are 0.
// x and y [N, H, d] contiguous. No gradient. Bits depend on the number of threads, not on their
// order.
at::Tensor head_grams(const at::Tensor& x, const at::Tensor& y, const at::Tensor& mask);

// The map that takes a gradient of P(x) back to x.
inline at::Tensor transposed_map(const at::Tensor& w_d) {
  return w_d.transpose(-1, -2);
}

// s·λ·m_h, [1, H, 1]: what multiplies D_h.
at::Tensor branch_strength(const at::Tensor& lambda, const at::Tensor& mask, double sign);

// Throws "[op] w_d must be …" unless w_d is a map for `heads` heads of `width`.
void check_map(const char* op, const at::Tensor& w_d, int64_t heads, int64_t width);

}  // namespace dex::kernels
