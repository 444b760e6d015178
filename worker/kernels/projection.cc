#include "worker/kernels/projection.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "worker/kernels/check.h"
#include "worker/kernels/gemm.h"
#include "worker/kernels/optional_tensor.h"

namespace dex::kernels {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Projection : torch::autograd::Function<Projection> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias) {
    Tensor y = product(x, weight.t());
    if (unpacked(bias).defined()) y.add_(bias);
    // A frozen weight's gradient is never asked for, and then nobody needs x.
    ctx->save_for_backward({weight.requires_grad() ? x : packed(Tensor(), x), weight});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor dy = grads[0].contiguous();
    Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0)) dx = product(dy, saved[1]);
    if (ctx->needs_input_grad(1)) dweight = product(dy.t(), saved[0]);
    if (ctx->needs_input_grad(2)) dbias = dy.sum(0);
    return {dx, dweight, dbias};
  }
};

// With a term: one op, so that its gradients are added by the products themselves.
struct WithTerm : torch::autograd::Function<WithTerm> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, const Tensor& term_x, const Tensor& a, const Tensor& b,
                        double scale) {
    Tensor y = product(x, weight.t());
    if (unpacked(bias).defined()) y.add_(bias);
    const Tensor thin = at::mm(term_x, a.t());
    y.addmm_(thin, b.t(), 1, scale);
    ctx->save_for_backward(
        {weight.requires_grad() ? x : packed(Tensor(), x), weight, term_x, a, b, thin});
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["same"] = x.is_same(term_x);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto s = ctx->get_saved_variables();
    const Tensor &weight = s[1], &term_x = s[2], &a = s[3], &b = s[4], &thin = s[5];
    const double scale = ctx->saved_data["scale"].toDouble();
    const Tensor dy = grads[0].contiguous();
    const Tensor dthin = at::mm(dy, b).mul_(scale);  // [N, r]
    Tensor dx, dweight, dbias, dterm_x, da, db;
    if (ctx->needs_input_grad(0)) dx = product(dy, weight);
    if (ctx->needs_input_grad(1)) dweight = product(dy.t(), s[0]);
    if (ctx->needs_input_grad(2)) dbias = dy.sum(0);
    // Autograd would add the two gradients of one x in a pass of its own.
    if (dx.defined() && ctx->saved_data["same"].toBool()) {
      dx.addmm_(dthin, a);
    } else if (ctx->needs_input_grad(3)) {
      dterm_x = at::mm(dthin, a);
    }
    if (ctx->needs_input_grad(4)) da = at::mm(dthin.t(), term_x);
    if (ctx->needs_input_grad(5)) db = at::mm(dy.t(), thin).mul_(scale);
    return {dx, dweight, dbias, dterm_x, da, db, Tensor()};
  }
};

void check_arguments(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const LowRankTerm& term) {
  constexpr auto kOp = "projection";
  check(x.dim() == 2, kOp, "x must be [N, in]", x);
  check(weight.dim() == 2 && weight.size(1) == x.size(1), kOp,
        "weight must be [out, in] with x's in", weight);
  check(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)), kOp,
        "bias must be [out] of weight", bias);
  if (!term.a.defined()) return;
  check(term.x.sizes() == x.sizes(), kOp, "the term's x must have x's shape", term.x);
  check(term.a.dim() == 2 && term.a.size(1) == x.size(1), kOp, "a must be [r, in] with x's in",
        term.a);
  check(term.b.dim() == 2 && term.b.size(0) == weight.size(0) && term.b.size(1) == term.a.size(0),
        kOp, "b must be [out, r] of weight and a", term.b);
}

}  // namespace

Tensor projection(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const LowRankTerm& term) {
  check_arguments(x, weight, bias, term);
  if (!term.a.defined()) return Projection::apply(x, weight, packed(bias, x));
  return WithTerm::apply(x, weight, packed(bias, x), term.x, term.a, term.b, term.scale);
}

Tensor projection_plain(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const LowRankTerm& term) {
  Tensor y = at::mm(x, weight.t());
  if (bias.defined()) y = y + bias;
  if (!term.a.defined()) return y;
  return y + at::mm(at::mm(term.x, term.a.t()), term.b.t()) * term.scale;
}

}  // namespace dex::kernels
