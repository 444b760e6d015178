#include "worker/kernels/dex_out.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "worker/kernels/check.h"
#include "worker/kernels/gemm.h"
#include "worker/kernels/head_map.h"
#include "worker/kernels/optional_tensor.h"

namespace dex::kernels {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The shapes and the three factors that both paths start from.
struct Inputs {
  Tensor o, w_o, w_d, gate, lambda, mask;
  double sign;
  int64_t heads, width;

  [[nodiscard]] Tensor by_head(const Tensor& x) const { return x.view({x.size(0), heads, width}); }
  [[nodiscard]] Tensor factor() const { return branch_strength(lambda, mask, sign); }
  [[nodiscard]] Tensor gate_row() const { return gate.view({1, heads, 1}); }
};

Inputs restore(AutogradContext* ctx) {
  const auto s = ctx->get_saved_variables();
  const int64_t heads = s[5].size(0);
  return {s[0],
          s[1],
          s[2],
          unpacked(s[3]),
          s[4],
          s[5],
          ctx->saved_data["sign"].toDouble(),
          heads,
          s[0].size(1) / heads};
}

void save(AutogradContext* ctx, const Tensor& o, const Tensor& w_o, const Tensor& w_d,
          const Tensor& gate, const Tensor& lambda, const Tensor& mask, double sign) {
  ctx->save_for_backward({o, w_o, w_d, gate, lambda, mask});
  ctx->saved_data["sign"] = sign;
}

// The branch inside the weights (performance.md §4). With A = dYᵀ·O, which dW_O needs anyway, every
// gradient is a product over the D rows of A and W_O: no work a token. F = s·λ·m, C = Σ_h
// F_h·g_h·W_h, Ā = Σ_h A_h:
//   W'_h  = W_h + F_h·W_h·w_dᵀ − C/H            dW_h = A_h + F_h·A_h·w_d − F_h·g_h·Ā/H
//   dw_d  = Σ_h F_h·A_hᵀ·W_h                    dg_h = −F_h·⟨W_h, Ā⟩/H
//   λ·dλ  = Σ_h F_h·⟨W_h·w_dᵀ, A_h⟩ − ⟨C, Ā⟩/H   (computed with F/λ, so that λ = 0 has its
//   gradient)
// A dense map mixes heads: there F stands between W and w_dᵀ, which is why it multiplies W first.
struct Folded : torch::autograd::Function<Folded> {
  static Tensor forward(AutogradContext* ctx, const Tensor& o, const Tensor& w_o, const Tensor& w_d,
                        const Tensor& gate, const Tensor& lambda, const Tensor& mask, double sign) {
    save(ctx, o, w_o, w_d, gate, lambda, mask, sign);
    return product(o, fold_w_o(w_o, w_d, unpacked(gate), lambda, mask, sign).t());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Inputs in = restore(ctx);
    const Tensor dy = grads[0].contiguous();
    const Tensor w = in.by_head(in.w_o), a = in.by_head(product(dy.t(), in.o));
    const Tensor factor = in.factor(), unit = in.mask.view({1, -1, 1}) * in.sign;
    Tensor d_o, d_w, d_map, d_gate, d_lambda;
    if (ctx->needs_input_grad(0)) {
      d_o = product(dy, fold_w_o(in.w_o, in.w_d, in.gate, in.lambda, in.mask, in.sign));
    }
    if (ctx->needs_input_grad(1)) d_w = a + times_map(a, in.w_d) * factor;
    const Tensor g = map_gradient(a, w * unit, in.w_d);
    d_map = g * in.lambda.reshape({1});
    d_lambda = (g * in.w_d).sum();
    if (in.gate.defined()) {
      const double share = 1.0 / static_cast<double>(in.heads);
      const Tensor a_sum = a.sum(1, true) * share;  // Ā/H [D, 1, d]
      const Tensor touched = (w * a_sum).sum(at::IntArrayRef{0, 2}) * unit.view({-1});  // per head
      if (d_w.defined()) d_w = d_w - a_sum * (factor * in.gate_row());
      d_gate = -touched * in.lambda.reshape({1});
      d_lambda = d_lambda - (touched * in.gate).sum();
    }
    if (d_w.defined()) d_w = d_w.reshape(in.w_o.sizes());
    return {d_o, d_w, d_map, d_gate, d_lambda.view(in.lambda.sizes()), Tensor(), Tensor()};
  }
};

// The branch on every token: O' = O + F·D, Y = O'·W_Oᵀ. O' and D are made again in the backward
// pass instead of kept. Maps of a head by itself, without a mean, take one pass over O for O', one
// over dO' for dO, and one over both for every map's and λ's gradient: λ's is ⟨w_d, G⟩.
struct Branch : torch::autograd::Function<Branch> {
  static bool is_plain_map(const Tensor& w_d, const Tensor& gate, const Tensor& o_h) {
    return !gate.defined() && is_head_map(w_d, o_h.size(1), o_h.size(2));
  }

  static Tensor changed(const Tensor& o_h, const Tensor& w_d, const Tensor& gate,
                        const Tensor& factor) {
    if (is_plain_map(w_d, gate, o_h)) return plus_map(o_h, w_d, factor);
    return o_h + dex_difference(o_h, w_d, gate) * factor;
  }

  static Tensor forward(AutogradContext* ctx, const Tensor& o, const Tensor& w_o, const Tensor& w_d,
                        const Tensor& gate, const Tensor& lambda, const Tensor& mask, double sign) {
    save(ctx, o, w_o, w_d, gate, lambda, mask, sign);
    const Tensor o_h = o.view({o.size(0), mask.size(0), -1});
    const Tensor factor = branch_strength(lambda, mask, sign);
    return product(changed(o_h, w_d, unpacked(gate), factor).reshape(o.sizes()), w_o.t());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const Inputs in = restore(ctx);
    const Tensor dy = grads[0].contiguous();
    const Tensor o = in.by_head(in.o);
    const Tensor d_changed = in.by_head(product(dy, in.w_o));  // ∂loss/∂O'
    Tensor d_w;
    if (ctx->needs_input_grad(1)) {
      d_w = product(dy.t(), changed(o, in.w_d, in.gate, in.factor()).reshape(in.o.sizes()));
    }
    variable_list out = is_plain_map(in.w_d, in.gate, o) ? of_maps(ctx, in, o, d_changed)
                                                         : of_means(ctx, in, o, d_changed);
    out[1] = d_w;
    return out;
  }

  // Gradients of all but W_O, the slots of backward().
  static variable_list of_maps(AutogradContext* ctx, const Inputs& in, const Tensor& o,
                               const Tensor& d_changed) {
    const Tensor unit = in.mask.view({-1, 1, 1}) * in.sign;
    const Tensor g = head_grams(o, d_changed, in.mask) * unit;
    const Tensor d_lambda = (g * in.w_d).sum();
    const Tensor d_map = (in.w_d.dim() == 3 ? g : g.sum(0)) * in.lambda.reshape({1});
    Tensor d_o;
    if (ctx->needs_input_grad(0))
      d_o = plus_map(d_changed, transposed_map(in.w_d), in.factor()).reshape(in.o.sizes());
    return {d_o, Tensor(), d_map, Tensor(), d_lambda.view(in.lambda.sizes()), Tensor(), Tensor()};
  }
  static variable_list of_means(AutogradContext* ctx, const Inputs& in, const Tensor& o,
                                const Tensor& d_changed) {
    const Tensor difference = dex_difference(o, in.w_d, in.gate);
    const Tensor d_unit = d_changed * (in.mask.view({1, -1, 1}) * in.sign);
    const Tensor d_difference = d_unit * in.lambda.reshape({1});
    Tensor d_o, d_gate;
    const Tensor d_map = map_gradient(o, d_difference, in.w_d);
    const Tensor d_lambda = (difference * d_unit).sum();
    if (ctx->needs_input_grad(0)) d_o = d_changed + times_map(d_difference, transposed_map(in.w_d));
    if (in.gate.defined()) {
      const double share = 1.0 / static_cast<double>(in.heads);
      if (d_o.defined()) d_o = d_o - (d_difference * in.gate_row()).sum(1, true) * share;
      d_gate = -(d_difference * o.mean(1, true)).sum(at::IntArrayRef{0, 2});
    }
    if (d_o.defined()) d_o = d_o.reshape(in.o.sizes());
    return {d_o, Tensor(), d_map, d_gate, d_lambda.view(in.lambda.sizes()), Tensor(), Tensor()};
  }
};

void check_arguments(const Tensor& o, const Tensor& w_o, const Tensor& w_d, const Tensor& gate,
                     const Tensor& lambda, const Tensor& mask) {
  constexpr auto kOp = "dex_out";
  check(mask.dim() == 1 && mask.size(0) > 0, kOp, "mask must be [H]", mask);
  const int64_t heads = mask.size(0);
  check(o.dim() == 2 && o.size(1) % heads == 0, kOp,
        "o must be [N, H·d] with H = " + std::to_string(heads), o);
  const int64_t width = o.size(1) / heads;
  check(w_o.dim() == 2 && w_o.size(1) == o.size(1), kOp, "w_o must be [D, H·d] with o's H·d", w_o);
  check_map(kOp, w_d, heads, width);
  check(!gate.defined() || gate.sizes() == mask.sizes(), kOp, "gate must be [H]", gate);
  check(lambda.numel() == 1, kOp, "lambda must hold one number", lambda);
}

}  // namespace

Tensor dex_difference(const Tensor& o, const Tensor& w_d, const Tensor& gate) {
  const Tensor projected = times_map(o, w_d);
  if (!gate.defined()) return projected;
  return projected - o.mean(1, true) * gate.view({1, -1, 1});
}

Tensor fold_w_o(const Tensor& w_o, const Tensor& w_d, const Tensor& gate, const Tensor& lambda,
                const Tensor& mask, double sign) {
  at::NoGradGuard no_grad;
  const int64_t heads = mask.size(0);
  const Tensor w = w_o.view({w_o.size(0), heads, -1}), factor = branch_strength(lambda, mask, sign);
  Tensor folded = w + times_map(w * factor, transposed_map(w_d));
  if (gate.defined()) {
    const Tensor share = factor * gate.view({1, -1, 1}) / static_cast<double>(heads);
    folded =
        folded - (w * share).sum(1, true);  // every head feeds the mean, so every block changes
  }
  return folded.reshape(w_o.sizes()).contiguous();
}

Tensor dex_out_folded(const Tensor& o, const Tensor& w_o, const Tensor& w_d, const Tensor& gate,
                      const Tensor& lambda, const Tensor& mask, double sign) {
  check_arguments(o, w_o, w_d, gate, lambda, mask);
  return Folded::apply(o.contiguous(), w_o.contiguous(), w_d, packed(gate, o), lambda, mask, sign);
}

Tensor dex_out_branch(const Tensor& o, const Tensor& w_o, const Tensor& w_d, const Tensor& gate,
                      const Tensor& lambda, const Tensor& mask, double sign) {
  check_arguments(o, w_o, w_d, gate, lambda, mask);
  return Branch::apply(o.contiguous(), w_o.contiguous(), w_d, packed(gate, o), lambda, mask, sign);
}

Tensor dex_out(const Tensor& o, const Tensor& w_o, const Tensor& w_d, const Tensor& gate,
               const Tensor& lambda, const Tensor& mask, double sign) {
  const bool fold = o.size(0) >= kFoldRows && w_o.requires_grad();
  return fold ? dex_out_folded(o, w_o, w_d, gate, lambda, mask, sign)
              : dex_out_branch(o, w_o, w_d, gate, lambda, mask, sign);
}

Tensor dex_out_plain(const Tensor& o, const Tensor& w_o, const Tensor& w_d, const Tensor& gate,
                     const Tensor& lambda, const Tensor& mask, double sign) {
  const Tensor o_h = o.view({o.size(0), mask.size(0), -1});
  const Tensor changed = o_h + dex_difference(o_h, w_d, gate) * branch_strength(lambda, mask, sign);
  return changed.reshape(o.sizes()).mm(w_o.t());
}

}  // namespace dex::kernels
