#include "worker/kernels/rms_norm.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>
#include <torch/csrc/autograd/custom_function.h>

#include "worker/kernels/check.h"
#include "worker/kernels/parallel.h"
#include "worker/kernels/rows.h"

namespace dex::kernels {

namespace {

constexpr int64_t kRowsAThread = 16;

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight, double eps) {
    const int64_t width = x.size(1);
    at::Tensor y = at::empty_like(x), rstd = at::empty({x.size(0)}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_norm", [&] {
      const auto *in = x.const_data_ptr<scalar_t>(), *w = weight.const_data_ptr<scalar_t>();
      auto *out = y.mutable_data_ptr<scalar_t>(), *r = rstd.mutable_data_ptr<scalar_t>();
      parallel_for(0, x.size(0), kRowsAThread, [=](int64_t b, int64_t e) {
        rows::rms_norm(in + b * width, w, out + b * width, r + b, e - b, width, eps);
      });
    });
    ctx->save_for_backward({x, weight, rstd});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &rstd = saved[2];
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx, dweight;
    if (ctx->needs_input_grad(0)) {
      dx = at::empty_like(x);
      const int64_t width = x.size(1);
      AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rms_norm_backward", [&] {
        const auto *g = dy.const_data_ptr<scalar_t>(), *in = x.const_data_ptr<scalar_t>(),
                   *w = weight.const_data_ptr<scalar_t>(), *r = rstd.const_data_ptr<scalar_t>();
        auto* out = dx.mutable_data_ptr<scalar_t>();
        parallel_for(0, x.size(0), kRowsAThread, [=](int64_t b, int64_t e) {
          rows::rms_norm_backward(g + b * width, in + b * width, w, r + b, out + b * width, e - b,
                                  width);
        });
      });
    }
    // Frozen but in full fine-tuning, where it is a thousandth of the step: no loop of its own.
    if (ctx->needs_input_grad(1)) dweight = (dy * x * rstd.unsqueeze(1)).sum(0);
    return {dx, dweight, at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  check(x.dim() == 2, "rms_norm", "x must be [N, D]", x);
  check(weight.dim() == 1 && weight.size(0) == x.size(1), "rms_norm", "weight must be [D] of x",
        weight);
  check(weight.scalar_type() == x.scalar_type(), "rms_norm", "weight must have x's type", weight);
  return RmsNorm::apply(x.contiguous(), weight.contiguous(), eps);
}

at::Tensor rms_norm_plain(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + eps) * weight;
}

}  // namespace dex::kernels
