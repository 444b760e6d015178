#include "worker/kernels/linear_cross_entropy.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "worker/kernels/check.h"
#include "worker/kernels/gemm.h"
#include "worker/kernels/optional_tensor.h"
#include "worker/kernels/parallel.h"
#include "worker/kernels/rows.h"

namespace dex::kernels {

namespace {

// Backward only scales what forward has computed: the gradient of the rows with a weight, all other
// rows are 0; and the head's, where it has one.
struct Precomputed : torch::autograd::Function<Precomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& hidden,
                            const at::Tensor& head, const at::Tensor& loss,
                            const at::Tensor& gradient, const at::Tensor& index,
                            const at::Tensor& head_gradient) {
    ctx->save_for_backward({gradient, index, head_gradient});
    ctx->saved_data["rows"] = hidden.size(0);
    static_cast<void>(head);
    return loss.clone();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const int64_t rows = ctx->saved_data["rows"].toInt();
    at::Tensor scaled = saved[0] * grads[0];
    if (scaled.size(0) != rows) {
      scaled = at::zeros({rows, scaled.size(1)}, scaled.options()).index_copy_(0, saved[1], scaled);
    }
    const at::Tensor head = unpacked(saved[2]).defined() ? saved[2] * grads[0] : at::Tensor();
    return {scaled, head, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void check_arguments(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets) {
  constexpr auto kOp = "linear_cross_entropy";
  check(hidden.dim() == 2, kOp, "hidden must be [N, D]", hidden);
  check(head.dim() == 2 && head.size(1) == hidden.size(1), kOp,
        "head must be [V, D] with hidden's D", head);
  check(head.scalar_type() == hidden.scalar_type(), kOp, "head must have hidden's type", head);
  check(
      targets.dim() == 1 && targets.size(0) == hidden.size(0) && targets.scalar_type() == at::kLong,
      kOp, "targets must be int64 [N]", targets);
}

void check_targets(const at::Tensor& targets, int64_t vocabulary) {
  const auto* t = targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < targets.size(0); ++i) {
    if (t[i] < 0 || t[i] >= vocabulary) {
      throw std::runtime_error("[linear_cross_entropy] targets must be in 0…" +
                               std::to_string(vocabulary - 1) + ", got " + std::to_string(t[i]));
    }
  }
}

// Losses of the chunk's rows; turns the logits into scales·(softmax − onehot) where scales are
// given.
template <class T>
void softmax_rows(const at::Tensor& logits, const int64_t* targets, const T* scales,
                  double* losses) {
  const int64_t width = logits.size(1);
  auto* z = logits.mutable_data_ptr<T>();
  parallel_for(0, logits.size(0), 1, [=](int64_t b, int64_t e) {
    for (int64_t row = b; row < e; ++row) {
      const T scale = scales == nullptr ? T(0) : scales[row];
      losses[row] =
          static_cast<double>(rows::softmax_loss(z + row * width, width, targets[row], scale));
    }
  });
}

// Rows a chunk, at most `most`, so that chunks are equally long: each of them reads the whole head,
// and a short last one would read it for little.
int64_t even_chunk(int64_t count, int64_t most) {
  const int64_t chunks = std::max<int64_t>(1, (count + most - 1) / most);
  return std::max<int64_t>(1, (count + chunks - 1) / chunks);
}

}  // namespace

LinearCrossEntropy::LinearCrossEntropy(int64_t chunk_rows) : chunk_rows_(chunk_rows) {}

at::Tensor LinearCrossEntropy::chunk(int64_t rows, const at::Tensor& head) {
  const bool fits = buffer_.defined() && buffer_.size(1) == head.size(0) &&
                    buffer_.scalar_type() == head.scalar_type();
  if (!fits) buffer_ = at::empty({chunk_rows_, head.size(0)}, head.options().requires_grad(false));
  return buffer_.narrow(0, 0, rows);
}

at::Tensor LinearCrossEntropy::loss(const at::Tensor& hidden, const at::Tensor& head,
                                    const at::Tensor& targets, const at::Tensor& weights) {
  check_arguments(hidden, head, targets);
  check(weights.dim() == 1 && weights.size(0) == hidden.size(0), "linear_cross_entropy",
        "weights must be [N]", weights);
  const bool trains_head = head.requires_grad() && at::GradMode::is_enabled();
  const bool wants_gradient = trains_head || (hidden.requires_grad() && at::GradMode::is_enabled());
  at::NoGradGuard no_grad;
  const at::Tensor index = weights.nonzero().squeeze(1);
  const int64_t count = index.size(0);
  const bool all = count == hidden.size(0);
  const at::Tensor x = (all ? hidden : hidden.index_select(0, index)).contiguous();
  const at::Tensor wanted = targets.index_select(0, index);
  const at::Tensor scales = weights.index_select(0, index).to(hidden.scalar_type());
  check_targets(wanted, head.size(0));

  const at::Tensor losses = at::empty({count}, at::kDouble);
  at::Tensor gradient, head_gradient;
  if (wants_gradient) gradient = at::empty_like(x);
  if (trains_head) head_gradient = at::zeros(head.sizes(), x.options());
  const int64_t step = even_chunk(count, chunk_rows_);
  for (int64_t at = 0; at < count; at += step) {
    const int64_t rows = std::min(step, count - at);
    at::Tensor logits = chunk(rows, head);
    product_into(logits, x.narrow(0, at, rows), head.t());
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "linear_cross_entropy", [&] {
      softmax_rows<scalar_t>(logits, wanted.const_data_ptr<int64_t>() + at,
                             wants_gradient ? scales.const_data_ptr<scalar_t>() + at : nullptr,
                             losses.mutable_data_ptr<double>() + at);
    });
    if (wants_gradient) {
      at::Tensor slice = gradient.narrow(0, at, rows);
      product_into(slice, logits, head);
      if (trains_head) product_into(head_gradient, logits.t(), x.narrow(0, at, rows), true);
    }
  }
  const at::Tensor total = (losses * scales.to(at::kDouble)).sum().to(hidden.scalar_type());
  if (!wants_gradient) return total;
  at::AutoGradMode grad(true);
  return Precomputed::apply(hidden, head, total, gradient, index, packed(head_gradient, x));
}

at::Tensor LinearCrossEntropy::row_losses(const at::Tensor& hidden, const at::Tensor& head,
                                          const at::Tensor& targets, at::Tensor* best) {
  check_arguments(hidden, head, targets);
  at::NoGradGuard no_grad;
  const at::Tensor index = targets.ge(0).nonzero().squeeze(1);
  const at::Tensor x = hidden.index_select(0, index).contiguous(),
                   wanted = targets.index_select(0, index);
  check_targets(wanted, head.size(0));
  const int64_t count = index.size(0);
  const at::Tensor losses = at::empty({count}, at::kDouble),
                   arg_max = at::empty({count}, at::kLong);
  const int64_t step = even_chunk(count, chunk_rows_);
  for (int64_t at = 0; at < count; at += step) {
    const int64_t rows = std::min(step, count - at);
    at::Tensor logits = chunk(rows, head);
    product_into(logits, x.narrow(0, at, rows), head.t());
    if (best != nullptr) arg_max.narrow(0, at, rows).copy_(logits.argmax(1));
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "linear_cross_entropy", [&] {
      softmax_rows<scalar_t>(logits, wanted.const_data_ptr<int64_t>() + at,
                             static_cast<const scalar_t*>(nullptr),
                             losses.mutable_data_ptr<double>() + at);
    });
  }
  if (best != nullptr)
    *best = at::full({hidden.size(0)}, -1, at::kLong).index_copy_(0, index, arg_max);
  return at::zeros({hidden.size(0)}, hidden.options().requires_grad(false))
      .index_copy_(0, index, losses.to(hidden.scalar_type()));
}

at::Tensor linear_cross_entropy_plain(const at::Tensor& hidden, const at::Tensor& head,
                                      const at::Tensor& targets, const at::Tensor& weights) {
  const at::Tensor safe = targets.where(weights.ne(0), at::zeros({}, targets.options()));
  const at::Tensor losses =
      at::cross_entropy_loss(hidden.mm(head.t()), safe, {}, at::Reduction::None);
  return (losses * weights.to(losses.scalar_type())).sum();
}

}  // namespace dex::kernels
