#include "worker/kernels/dex_out_mean.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "worker/kernels/check.h"
#include "worker/kernels/gemm.h"
#include "worker/kernels/head_map.h"
#include "worker/kernels/optional_tensor.h"
#include "worker/kernels/running_mean.h"

namespace dex::kernels {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor gate_row(const Tensor& gate) {
  return gate.view({1, -1, 1});
}

// V̄ of the key/value head that each query head reads: [N, K, d] → [N, H, d].
Tensor to_query_heads(const Tensor& v, int64_t heads) {
  return v.repeat_interleave(heads / v.size(1), 1);
}

// D from its mean: prefix_mean subtracts the gated mean of O from P(O), uniform_map is the gated
// mean of V alone.
Tensor difference_of(const Tensor& o, const Tensor& mean, const Tensor& w_d, const Tensor& gate) {
  const Tensor gated = mean * gate_row(gate);
  return w_d.defined() ? times_map(o, w_d) - gated : gated;
}

struct MeanBranch : torch::autograd::Function<MeanBranch> {
  static Tensor forward(AutogradContext* ctx, const Tensor& o, const Tensor& v, const Tensor& w_o,
                        const Tensor& w_d, const Tensor& gate, const Tensor& lambda,
                        const Tensor& mask, double sign, const std::vector<int64_t>& bounds) {
    ctx->save_for_backward({o, v, w_o, w_d, gate, lambda, mask});
    ctx->saved_data["sign"] = sign;
    ctx->saved_data["bounds"] = bounds;
    const Tensor o_h = o.view({o.size(0), mask.size(0), -1});
    const Tensor d = mean_difference(o_h, unpacked(v), unpacked(w_d), gate, bounds);
    return product((o_h + d * branch_strength(lambda, mask, sign)).reshape(o.sizes()), w_o.t());
  }

  // With G = ∂loss/∂O' and E = s·λ·m∘G = ∂loss/∂D, over tokens t and channels:
  //   ∂λ = Σ ⟨D, s·m∘G⟩      ∂g_h = ∓Σ ⟨E_h, mean_h⟩      ∂mean_h = ∓g_h·E_h
  // (− for prefix_mean, + for uniform_map); the mean's own gradient is running_mean_backward.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &o = saved[0], v = unpacked(saved[1]), &w_o = saved[2], w_d = unpacked(saved[3]),
                 &gate = saved[4], &lambda = saved[5], &mask = saved[6];
    const double sign = ctx->saved_data["sign"].toDouble();
    const auto bounds = ctx->saved_data["bounds"].toIntVector();
    const int64_t heads = mask.size(0), rows = o.size(0);
    const Tensor& dy = grads[0];

    const Tensor o_h = o.view({rows, heads, -1});
    const Tensor mean =
        v.defined() ? to_query_heads(running_mean(v, bounds), heads) : running_mean(o_h, bounds);
    const Tensor d = difference_of(o_h, mean, w_d, gate);
    const Tensor d_changed = product(dy, w_o).view(o_h.sizes());
    const Tensor d_unit = d_changed * branch_strength(at::ones_like(lambda), mask, sign);
    const Tensor d_d = d_unit * lambda.reshape({1});

    Tensor d_o, d_v, d_w, d_map;
    if (ctx->needs_input_grad(2)) {
      d_w = product(dy.t(), (o_h + d * branch_strength(lambda, mask, sign)).reshape(o.sizes()));
    }
    const Tensor d_lambda = (d * d_unit).sum().view(lambda.sizes());
    Tensor d_gate = (d_d * mean).sum(at::IntArrayRef{0, 2});
    Tensor d_mean = d_d * gate_row(gate);
    if (v.defined()) {
      if (ctx->needs_input_grad(1)) {
        d_v = running_mean_backward(d_mean.view({rows, v.size(1), -1, v.size(2)}).sum(2), bounds);
      }
      d_o = d_changed;
    } else {
      d_gate = -d_gate;
      d_map = map_gradient(o_h, d_d, w_d);
      if (ctx->needs_input_grad(0)) {
        d_o =
            d_changed + times_map(d_d, transposed_map(w_d)) - running_mean_backward(d_mean, bounds);
      }
    }
    if (d_o.defined()) d_o = d_o.reshape(o.sizes());
    return {d_o, d_v, d_w, d_map, d_gate, d_lambda, Tensor(), Tensor(), Tensor()};
  }
};

void check_arguments(const Tensor& o, const Tensor& v, const Tensor& w_o, const Tensor& w_d,
                     const Tensor& gate, const Tensor& lambda, const Tensor& mask) {
  constexpr auto kOp = "dex_out_mean";
  check(mask.dim() == 1 && mask.size(0) > 0, kOp, "mask must be [H]", mask);
  const int64_t heads = mask.size(0);
  check(o.dim() == 2 && o.size(1) % heads == 0, kOp,
        "o must be [N, H·d] with H = " + std::to_string(heads), o);
  const int64_t width = o.size(1) / heads;
  check(w_o.dim() == 2 && w_o.size(1) == o.size(1), kOp, "w_o must be [D, H·d] with o's H·d", w_o);
  check(gate.defined() && gate.sizes() == mask.sizes(), kOp, "gate must be [H]", gate);
  check(lambda.numel() == 1, kOp, "lambda must hold one number", lambda);
  if (!v.defined()) return check_map(kOp, w_d, heads, width);
  check(v.dim() == 3 && v.size(0) == o.size(0) && v.size(1) > 0 && heads % v.size(1) == 0 &&
            v.size(2) == width,
        kOp, "v must be [N, K, d] with o's N and d, K dividing H = " + std::to_string(heads), v);
  check(!w_d.defined(), kOp, "w_d has no meaning with v", w_d);
}

}  // namespace

Tensor dex_out_mean(const Tensor& o, const Tensor& v, const Tensor& w_o, const Tensor& w_d,
                    const Tensor& gate, const Tensor& lambda, const Tensor& mask, double sign,
                    const std::vector<int64_t>& bounds) {
  check_arguments(o, v, w_o, w_d, gate, lambda, mask);
  return MeanBranch::apply(o.contiguous(), packed(v, o), w_o.contiguous(), packed(w_d, o), gate,
                           lambda, mask, sign, bounds);
}

Tensor mean_difference(const Tensor& o, const Tensor& v, const Tensor& w_d, const Tensor& gate,
                       const std::vector<int64_t>& bounds) {
  const Tensor mean =
      v.defined() ? to_query_heads(running_mean(v, bounds), o.size(1)) : running_mean(o, bounds);
  return difference_of(o, mean, w_d, gate);
}

Tensor dex_out_mean_plain(const Tensor& o, const Tensor& v, const Tensor& w_o, const Tensor& w_d,
                          const Tensor& gate, const Tensor& lambda, const Tensor& mask, double sign,
                          const std::vector<int64_t>& bounds) {
  const Tensor o_h = o.view({o.size(0), mask.size(0), -1});
  const Tensor mean = v.defined() ? to_query_heads(running_mean_plain(v, bounds), mask.size(0))
                                  : running_mean_plain(o_h, bounds);
  const Tensor d = difference_of(o_h, mean, w_d, gate);
  return (o_h + d * branch_strength(lambda, mask, sign)).reshape(o.sizes()).mm(w_o.t());
}

}  // namespace dex::kernels
