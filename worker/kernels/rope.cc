#include "worker/kernels/rope.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "worker/kernels/check.h"
#include "worker/kernels/parallel.h"
#include "worker/kernels/rows.h"

namespace dex::kernels {

namespace {

constexpr int64_t kTokensAThread = 16;

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  double direction) {
  at::Tensor y = at::empty_like(x);
  const int64_t heads = x.size(1), half = x.size(2) / 2;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "rope", [&] {
    const auto *in = x.const_data_ptr<scalar_t>(), *c = cos.const_data_ptr<scalar_t>(),
               *s = sin.const_data_ptr<scalar_t>();
    auto* out = y.mutable_data_ptr<scalar_t>();
    parallel_for(0, x.size(0), kTokensAThread, [=](int64_t b, int64_t e) {
      const int64_t at = b * heads * 2 * half;
      rows::rope(in + at, c + b * half, s + b * half, out + at, e - b, heads, half, direction);
    });
  });
  return y;
}

struct Rope : torch::autograd::Function<Rope> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& cos, const at::Tensor& sin) {
    ctx->save_for_backward({cos, sin});
    return rotate(x, cos, sin, 1);
  }

  // A rotation's transpose is the rotation back.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    return {rotate(grads[0].contiguous(), saved[0], saved[1], -1), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> rope_angles(const at::Tensor& positions,
                                              std::span<const float> frequencies) {
  check(positions.dim() == 1 && positions.scalar_type() == at::kLong, "rope_angles",
        "positions must be int64 [N]", positions);
  const int64_t half = static_cast<int64_t>(frequencies.size()), rows = positions.size(0);
  at::Tensor cos = at::empty({rows, half}, at::kFloat), sin = at::empty({rows, half}, at::kFloat);
  const at::Tensor where = positions.contiguous();
  const auto* position = where.const_data_ptr<int64_t>();
  auto *c = cos.mutable_data_ptr<float>(), *s = sin.mutable_data_ptr<float>();
  parallel_for(0, rows, kTokensAThread, [&](int64_t b, int64_t e) {
    for (int64_t row = b; row < e; ++row) {
      for (int64_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(position[row]) * frequencies[static_cast<size_t>(i)];
        c[row * half + i] = std::cos(angle);
        s[row * half + i] = std::sin(angle);
      }
    }
  });
  return {cos, sin};
}

at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  check(x.dim() == 3 && x.size(2) % 2 == 0, "rope", "x must be [N, H, d] with even d", x);
  check(cos.dim() == 2 && cos.size(0) == x.size(0) && cos.size(1) * 2 == x.size(2), "rope",
        "cos must be [N, d/2] of x", cos);
  check(sin.sizes() == cos.sizes(), "rope", "sin must have cos' shape", sin);
  check(cos.scalar_type() == x.scalar_type() && sin.scalar_type() == x.scalar_type(), "rope",
        "cos and sin must have x's type", cos);
  return Rope::apply(x.contiguous(), cos.contiguous(), sin.contiguous());
}

at::Tensor rope_plain(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(2) / 2;
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);
  return at::cat({a * c - b * s, b * c + a * s}, 2);
}

}  // namespace dex::kernels
