#include "worker/kernels/running_mean.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>

#include "worker/kernels/check.h"
#include "worker/kernels/parallel.h"

namespace dex::kernels {

namespace {

using at::Tensor;

// Threads share the columns, because a column's sum runs through all rows. A strip's sums fit in
// registers and first-level cache.
constexpr int64_t kStrip = 64;

// Walks the rows of each document, `step` +1 forwards or −1 backwards, with one running sum a
// column. Forward: y = Σ x/count. Backward: y = Σ (x/count), the count being that of the row.
template <class T>
void walk(const T* x, T* y, int64_t width, const std::vector<int64_t>& bounds, bool backward,
          int64_t begin, int64_t end) {
  std::array<T, kStrip> sum;
  for (int64_t strip = begin; strip < end; strip += kStrip) {
    const int64_t columns = std::min(kStrip, end - strip);
    for (size_t document = 0; document + 1 < bounds.size(); ++document) {
      const int64_t first = bounds[document], rows = bounds[document + 1] - first;
      sum.fill(T(0));
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t t = backward ? rows - 1 - i : i;
        const T count = static_cast<T>(t + 1);
        const T* in = x + (first + t) * width + strip;
        T* out = y + (first + t) * width + strip;
        if (backward) {
          for (int64_t c = 0; c < columns; ++c) out[c] = sum[c] += in[c] / count;
        } else {
          for (int64_t c = 0; c < columns; ++c) out[c] = (sum[c] += in[c]) / count;
        }
      }
    }
  }
}

Tensor walked(const Tensor& x, const std::vector<int64_t>& bounds, bool backward) {
  const Tensor in = x.contiguous();
  Tensor out = at::empty_like(in);
  const int64_t width = in.size(0) == 0 ? 0 : in.numel() / in.size(0);
  AT_DISPATCH_FLOATING_TYPES(in.scalar_type(), "running_mean", [&] {
    const auto* from = in.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    parallel_for(0, width, kStrip, [&, from, to](int64_t begin, int64_t end) {
      walk(from, to, width, bounds, backward, begin, end);
    });
  });
  return out;
}

void check_bounds(const Tensor& x, const std::vector<int64_t>& bounds) {
  bool good =
      x.dim() > 0 && bounds.size() >= 2 && bounds.front() == 0 && bounds.back() == x.size(0);
  for (size_t i = 0; good && i + 1 < bounds.size(); ++i) good = bounds[i] < bounds[i + 1];
  check(good, "running_mean", "bounds must rise from 0 to the rows of x", x);
}

struct RunningMean : torch::autograd::Function<RunningMean> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x,
                        const std::vector<int64_t>& bounds) {
    ctx->saved_data["bounds"] = bounds;
    return walked(x, bounds, /*backward=*/false);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    return {walked(grads[0], ctx->saved_data["bounds"].toIntVector(), /*backward=*/true), Tensor()};
  }
};

}  // namespace

Tensor running_mean(const Tensor& x, const std::vector<int64_t>& bounds) {
  check_bounds(x, bounds);
  return RunningMean::apply(x, bounds);
}

Tensor running_mean_backward(const Tensor& dy, const std::vector<int64_t>& bounds) {
  check_bounds(dy, bounds);
  return walked(dy, bounds, /*backward=*/true);
}

Tensor running_mean_plain(const Tensor& x, const std::vector<int64_t>& bounds) {
  check_bounds(x, bounds);
  std::vector<Tensor> means;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    const int64_t rows = bounds[i + 1] - bounds[i];
    std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
    shape[0] = rows;
    const Tensor count = at::arange(1, rows + 1, x.options()).view(shape);
    means.push_back(x.narrow(0, bounds[i], rows).cumsum(0) / count);
  }
  return at::cat(means, 0);
}

}  // namespace dex::kernels
