#include "worker/kernels/head_map.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include <string>

#include "worker/kernels/check.h"

namespace dex::kernels {

namespace {

using at::Tensor;

bool per_head(const Tensor& w_d) {
  return w_d.dim() == 3;
}

// Rows of the width that w_d multiplies: a row a head, or for `dense` a row a token.
Tensor as_rows(const Tensor& x, const Tensor& w_d) {
  return x.reshape({-1, w_d.size(0)});
}

}  // namespace

Tensor times_map(const Tensor& x, const Tensor& w_d) {
  if (per_head(w_d)) return x.transpose(0, 1).bmm(w_d).transpose(0, 1);
  return as_rows(x, w_d).mm(w_d).view(x.sizes());
}

Tensor map_gradient(const Tensor& x, const Tensor& y, const Tensor& w_d) {
  if (per_head(w_d)) return x.permute({1, 2, 0}).bmm(y.transpose(0, 1));
  return as_rows(x, w_d).t().mm(as_rows(y, w_d));
}

Tensor branch_strength(const Tensor& lambda, const Tensor& mask, double sign) {
  return (lambda.reshape({1}) * mask * sign).view({1, -1, 1});
}

void check_map(const char* op, const Tensor& w_d, int64_t heads, int64_t width) {
  const int64_t all = heads * width;
  const bool good = w_d.defined() && (w_d.sizes() == at::IntArrayRef({width, width}) ||
                                      w_d.sizes() == at::IntArrayRef({heads, width, width}) ||
                                      w_d.sizes() == at::IntArrayRef({all, all}));
  check(good, op,
        "w_d must be [d, d], [H, d, d] or [H·d, H·d] with H = " + std::to_string(heads) +
            ", d = " + std::to_string(width),
        w_d);
}

}  // namespace dex::kernels
