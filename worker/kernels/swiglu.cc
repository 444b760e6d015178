#include "worker/kernels/swiglu.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "worker/kernels/check.h"
#include "worker/kernels/parallel.h"
#include "worker/kernels/rows.h"

namespace dex::kernels {

namespace {

constexpr int64_t kElementsAThread = 16384;

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& gate,
                            const at::Tensor& up) {
    at::Tensor y = at::empty_like(gate);
    AT_DISPATCH_FLOATING_TYPES(gate.scalar_type(), "swiglu", [&] {
      const auto *g = gate.const_data_ptr<scalar_t>(), *u = up.const_data_ptr<scalar_t>();
      auto* out = y.mutable_data_ptr<scalar_t>();
      parallel_for(0, gate.numel(), kElementsAThread,
                   [=](int64_t b, int64_t e) { rows::swiglu(g + b, u + b, out + b, e - b); });
    });
    ctx->save_for_backward({gate, up});
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dgate = at::empty_like(saved[0]), dup = at::empty_like(saved[1]);
    AT_DISPATCH_FLOATING_TYPES(dy.scalar_type(), "swiglu_backward", [&] {
      const auto *d = dy.const_data_ptr<scalar_t>(), *g = saved[0].const_data_ptr<scalar_t>(),
                 *u = saved[1].const_data_ptr<scalar_t>();
      auto *dg = dgate.mutable_data_ptr<scalar_t>(), *du = dup.mutable_data_ptr<scalar_t>();
      parallel_for(0, dy.numel(), kElementsAThread, [=](int64_t b, int64_t e) {
        rows::swiglu_backward(d + b, g + b, u + b, dg + b, du + b, e - b);
      });
    });
    return {dgate, dup};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  check(gate.sizes() == up.sizes(), "swiglu", "up must have gate's shape", up);
  check(gate.scalar_type() == up.scalar_type(), "swiglu", "up must have gate's type", up);
  return Swiglu::apply(gate.contiguous(), up.contiguous());
}

at::Tensor swiglu_plain(const at::Tensor& gate, const at::Tensor& up) {
  return at::silu(gate) * up;
}

}  // namespace dex::kernels
