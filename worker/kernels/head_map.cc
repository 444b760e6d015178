#include "worker/kernels/head_map.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <vector>

#include "worker/kernels/check.h"
#include "worker/kernels/head_rows.h"
#include "worker/kernels/parallel.h"

namespace dex::kernels {

namespace {

using at::Tensor;

constexpr int64_t kMapTokensAThread = 48;

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

bool is_head_map(const Tensor& w_d, int64_t heads, int64_t width) {
  return w_d.sizes() == at::IntArrayRef({width, width}) ||
         w_d.sizes() == at::IntArrayRef({heads, width, width});
}

Tensor plus_map(const Tensor& x, const Tensor& w_d, const Tensor& strength) {
  const int64_t heads = x.size(1), width = x.size(2);
  const Tensor maps = (strength.to(x.scalar_type()).view({heads, 1, 1}) * w_d).contiguous();
  const Tensor wide = strength.to(at::kDouble).contiguous();
  const auto* counts = wide.const_data_ptr<double>();
  Tensor y = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "plus_map", [&] {
    std::vector<const scalar_t*> used(static_cast<size_t>(heads), nullptr);
    for (int64_t h = 0; h < heads; ++h) {
      if (counts[h] != 0)
        used[static_cast<size_t>(h)] = maps.const_data_ptr<scalar_t>() + h * width * width;
    }
    const auto* in = x.const_data_ptr<scalar_t>();
    auto* out = y.mutable_data_ptr<scalar_t>();
    const int64_t row = heads * width;
    parallel_for(0, x.size(0), kMapTokensAThread, [&](int64_t b, int64_t e) {
      rows::add_head_products<scalar_t>(in + b * row, out + b * row, used, e - b, width);
    });
  });
  return y;
}

Tensor plus_map_plain(const Tensor& x, const Tensor& w_d, const Tensor& strength) {
  return x + times_map(x, w_d) * strength;
}

Tensor head_grams(const Tensor& x, const Tensor& y, const Tensor& mask) {
  const int64_t heads = x.size(1), width = x.size(2), tokens = x.size(0);
  const int64_t shares = std::max<int64_t>(1, at::get_num_threads());
  const Tensor wide = mask.to(at::kDouble).contiguous();
  const auto* counts = wide.const_data_ptr<double>();
  // A sum a share, added in their order: whichever thread comes first, the bits are the same.
  const Tensor sums = at::zeros({shares, heads, width, width}, x.options().requires_grad(false));
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "head_grams", [&] {
    const auto *left = x.const_data_ptr<scalar_t>(), *right = y.const_data_ptr<scalar_t>();
    auto* memory = sums.mutable_data_ptr<scalar_t>();
    const int64_t row = heads * width;
    parallel_for(0, shares, 1, [&](int64_t b, int64_t e) {
      std::vector<scalar_t*> wanted(static_cast<size_t>(heads));
      for (int64_t share = b; share < e; ++share) {
        for (int64_t h = 0; h < heads; ++h) {
          wanted[static_cast<size_t>(h)] =
              counts[h] != 0 ? memory + (share * heads + h) * width * width : nullptr;
        }
        const int64_t first = tokens * share / shares, last = tokens * (share + 1) / shares;
        rows::add_head_grams<scalar_t>(left + first * row, right + first * row, wanted,
                                       last - first, width);
      }
    });
  });
  return sums.sum(0);
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
