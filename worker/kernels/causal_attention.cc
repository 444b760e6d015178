#include "worker/kernels/causal_attention.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>
#include <span>
#include <type_traits>

#include "worker/kernels/attention_rows.h"
#include "worker/kernels/attention_work.h"
#include "worker/kernels/check.h"
#include "worker/kernels/parallel.h"

namespace dex::kernels {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What forward and backward pass share: how the work is cut, and a head's pointers.
struct Work {
  const Tensor &q, &k, &v;
  const std::vector<int64_t>& bounds;
  int64_t window;
  std::vector<AttentionBlock> blocks =
      attention_blocks(bounds, q.size(1), k.size(1), rows::kQueryBlock);
  std::vector<int64_t> shares =
      attention_shares(blocks, window, std::max<int64_t>(1, at::get_num_threads()));

  [[nodiscard]] int64_t first_row(const AttentionBlock& block) const {
    return bounds[static_cast<size_t>(block.document)];
  }
  [[nodiscard]] int64_t key_head(const AttentionBlock& block) const {
    return block.segment % k.size(1);
  }
  [[nodiscard]] int64_t rows_of(const AttentionBlock& block) const {
    return bounds[static_cast<size_t>(block.document) + 1] - first_row(block);
  }
  template <class T>
  [[nodiscard]] rows::AttentionHead<T> head_of(const AttentionBlock& block) const {
    const int64_t row = first_row(block), key = key_head(block);
    return {place<const T>(q, row, block.head),
            place<const T>(k, row, key),
            place<const T>(v, row, key),
            q.stride(0),
            k.stride(0),
            v.stride(0),
            q.size(2),
            v.size(2),
            window,
            static_cast<T>(1 / std::sqrt(static_cast<double>(q.size(2))))};
  }
  // Element (row, head, 0) of a [N, heads, width] tensor.
  template <class T>
  static T* place(const Tensor& x, int64_t row, int64_t head) {
    using Number = std::remove_const_t<T>;
    return const_cast<Number*>(x.const_data_ptr<Number>()) + row * x.stride(0) + head * x.stride(1);
  }
  // Calls body(share, its blocks, scratch) for every share, on as many threads.
  template <class T, class Body>
  void run(const Body& body) const {
    const auto count = static_cast<int64_t>(shares.size()) - 1;
    const int64_t size = rows::attention_scratch(q.size(2), v.size(2));
    const Tensor scratch = at::empty({count, size}, q.options().requires_grad(false));
    T* memory = scratch.mutable_data_ptr<T>();
    parallel_for(0, count, 1, [&](int64_t b, int64_t e) {
      for (int64_t share = b; share < e; ++share) {
        const auto first = static_cast<size_t>(shares[static_cast<size_t>(share)]),
                   last = static_cast<size_t>(shares[static_cast<size_t>(share) + 1]);
        body(share, std::span(blocks).subspan(first, last - first), memory + share * size);
      }
    });
  }
};

// Gradients of a segment that an earlier share began: kept apart and added when all are done, in
// the order of the shares.
struct Remainder {
  const AttentionBlock* block = nullptr;  // one of the segment; null: none
  Tensor dk, dv;                          // [rows of the document, d], [rows, d_v]
};

std::vector<Remainder> remainders(const Work& work) {
  std::vector<Remainder> list(work.shares.size() - 1);
  for (size_t share = 1; share < list.size(); ++share) {
    const auto first = static_cast<size_t>(work.shares[share]),
               last = static_cast<size_t>(work.shares[share + 1]);
    if (first == last || first == 0) continue;
    const AttentionBlock& block = work.blocks[first];
    if (work.blocks[first - 1].segment != block.segment) continue;
    const int64_t rows = work.rows_of(block);
    const auto options = work.q.options().requires_grad(false);
    list[share] = {&block, at::zeros({rows, work.k.size(2)}, options),
                   at::zeros({rows, work.v.size(2)}, options)};
  }
  return list;
}

template <class T>
void forward_all(const Work& work, const Tensor& o, const Tensor& lse) {
  T *out = o.mutable_data_ptr<T>(), *sums = lse.mutable_data_ptr<T>();
  const int64_t rows = o.size(0), heads = o.size(1), width = o.size(2);
  work.run<T>([&](int64_t, std::span<const AttentionBlock> blocks, T* scratch) {
    for (const AttentionBlock& block : blocks) {
      const int64_t row = work.first_row(block) + block.begin;
      rows::attention(work.head_of<T>(block), block.begin, block.end,
                      out + (row * heads + block.head) * width, heads * width,
                      sums + block.head * rows + row, scratch);
    }
  });
}

template <class T>
void backward_all(const Work& work, const Tensor& o, const Tensor& lse, const Tensor& d_o,
                  const Tensor& dq, const Tensor& dk, const Tensor& dv) {
  const int64_t rows = o.size(0);
  const std::vector<Remainder> rest = remainders(work);
  work.run<T>([&](int64_t share, std::span<const AttentionBlock> blocks, T* scratch) {
    const Remainder& apart = rest[static_cast<size_t>(share)];
    for (const AttentionBlock& block : blocks) {
      const int64_t begin = work.first_row(block), row = begin + block.begin;
      const int64_t key = work.key_head(block);
      const bool is_apart = apart.block != nullptr && block.segment == apart.block->segment;
      const rows::AttentionGradient<T> gradient{
          Work::place<const T>(o, row, block.head),
          Work::place<const T>(d_o, row, block.head),
          lse.const_data_ptr<T>() + block.head * rows + row,
          o.stride(0),
          Work::place<T>(dq, row, block.head),
          is_apart ? apart.dk.mutable_data_ptr<T>() : Work::place<T>(dk, begin, key),
          is_apart ? apart.dv.mutable_data_ptr<T>() : Work::place<T>(dv, begin, key),
          dq.stride(0),
          is_apart ? apart.dk.stride(0) : dk.stride(0),
          is_apart ? apart.dv.stride(0) : dv.stride(0)};
      rows::attention_backward(work.head_of<T>(block), block.begin, block.end, gradient, scratch);
    }
  });
  for (const Remainder& apart : rest) {
    if (apart.block == nullptr) continue;
    const int64_t begin = work.first_row(*apart.block), key = work.key_head(*apart.block);
    const auto place = [&](const Tensor& x) {
      return x.narrow(0, begin, apart.dk.size(0)).select(1, key);
    };
    place(dk).add_(apart.dk);
    place(dv).add_(apart.dv);
  }
}

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::vector<int64_t>& bounds, int64_t window) {
    const Work work{q, k, v, bounds, window};
    const Tensor o = at::empty({q.size(0), q.size(1), v.size(2)}, q.options());
    const Tensor lse = at::empty({q.size(1), q.size(0)}, q.options());
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "causal_attention",
                               [&] { forward_all<scalar_t>(work, o, lse); });
    ctx->save_for_backward({q, k, v, o, lse});
    ctx->saved_data["bounds"] = bounds;
    ctx->saved_data["window"] = window;
    return o;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &o = saved[3], &lse = saved[4];
    const Tensor d_o = grads[0].contiguous();
    const std::vector<int64_t> bounds = ctx->saved_data["bounds"].toIntVector();
    const Work work{q, k, v, bounds, ctx->saved_data["window"].toInt()};
    const Tensor dq = at::empty(q.sizes(), q.options()), dk = at::zeros(k.sizes(), k.options()),
                 dv = at::zeros(v.sizes(), v.options());
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "causal_attention_backward",
                               [&] { backward_all<scalar_t>(work, o, lse, d_o, dq, dk, dv); });
    return {dq, dk, dv, Tensor(), Tensor()};
  }
};

void check_arguments(const Tensor& q, const Tensor& k, const Tensor& v,
                     const std::vector<int64_t>& bounds, int64_t window) {
  constexpr auto kOp = "causal_attention";
  check(q.dim() == 3, kOp, "q must be [N, H, d]", q);
  check(k.dim() == 3 && k.size(0) == q.size(0) && k.size(2) == q.size(2), kOp,
        "k must be [N, K, d] with q's N and d", k);
  check(v.dim() == 3 && v.size(0) == q.size(0) && v.size(1) == k.size(1), kOp,
        "v must be [N, K, d_v] with k's N and K", v);
  check(k.size(1) > 0 && q.size(1) % k.size(1) == 0, kOp, "k's heads must divide q's", k);
  check(k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type(), kOp,
        "k and v must have q's type", k);
  check(window >= 0 && bounds.size() >= 2 && bounds.front() == 0 && bounds.back() == q.size(0), kOp,
        "bounds must go from 0 to N, and window must not be negative", q);
}

// The row loops want a head's numbers side by side; heads and rows may lie anywhere.
Tensor adjacent(const Tensor& x) {
  return x.stride(2) == 1 ? x : x.contiguous();
}

}  // namespace

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                        const std::vector<int64_t>& bounds, int64_t window) {
  check_arguments(q, k, v, bounds, window);
  return CausalAttention::apply(adjacent(q), adjacent(k), adjacent(v), bounds, window);
}

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t window) {
  return causal_attention(q, k, v, {0, q.size(0)}, window);
}

Tensor causal_attention_plain(const Tensor& q, const Tensor& k, const Tensor& v,
                              const std::vector<int64_t>& bounds, int64_t window) {
  const int64_t group = q.size(1) / k.size(1);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(2)));
  std::vector<Tensor> outputs;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    const int64_t rows = bounds[i + 1] - bounds[i];
    const auto heads = [&](const Tensor& x, int64_t times) {  // [heads, rows, width]
      return x.narrow(0, bounds[i], rows).transpose(0, 1).repeat_interleave(times, 0);
    };
    Tensor seen = at::ones({rows, rows}, q.options().dtype(at::kBool)).tril();
    if (window > 0) seen = seen.triu(1 - window);
    const Tensor scores = at::matmul(heads(q, 1), heads(k, group).mT()) * scale;
    const Tensor map = at::softmax(
        scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity()), -1);
    outputs.push_back(at::matmul(map, heads(v, group)).transpose(0, 1));
  }
  return at::cat(outputs, 0);
}

}  // namespace dex::kernels
