#include "worker/model/causal_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace dex::model {

namespace {

using at::Tensor;

// Queries that share a mask: large enough for the product to be quick, small enough for the mask
// [512, 512 + window] to stay small.
constexpr int64_t kPartRows = 512;

// Query rows [begin, end) and the keys [from, end) that one of them sees.
struct Part {
  int64_t begin, end, from;
  Tensor mask;  // [end − begin, end − from], 0 or −Inf; undefined: causal, all of the document
};

std::vector<Part> parts(const Tensor& q, int64_t window) {
  const int64_t rows = q.size(0);
  if (window == 0 || rows <= window) return {{0, rows, 0, Tensor()}};
  std::vector<Part> list;
  for (int64_t begin = 0; begin < rows; begin += kPartRows) {
    const int64_t end = std::min(rows, begin + kPartRows),
                  from = std::max<int64_t>(0, begin - window + 1);
    // Key `from` + c minus query `begin` + r is in (−window, 0]; log makes 0 and −Inf of 1 and 0.
    const Tensor seen = at::ones({end - begin, end - from}, q.options().requires_grad(false))
                            .tril(begin - from)
                            .triu(begin - from - window + 1);
    list.push_back({begin, end, from, seen.log()});
  }
  return list;
}

Tensor batched(const Tensor& x, int64_t begin, int64_t end) {  // [T, H, d] → [1, H, rows, d]
  return x.slice(0, begin, end).transpose(0, 1).unsqueeze(0);
}

}  // namespace

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t window) {
  std::vector<Tensor> outputs;
  for (const Part& part : parts(q, window)) {
    const bool causal = !part.mask.defined();
    outputs.push_back(at::scaled_dot_product_attention(
                          batched(q, part.begin, part.end), batched(k, part.from, part.end),
                          batched(v, part.from, part.end),
                          causal ? std::nullopt : std::optional<Tensor>(part.mask), 0.0, causal,
                          std::nullopt,
                          /*enable_gqa=*/true)
                          .squeeze(0)
                          .transpose(0, 1));
  }
  return outputs.size() == 1 ? outputs[0] : at::cat(outputs, 0);
}

Tensor attention_entropy(const Tensor& q, const Tensor& k, int64_t window) {
  at::NoGradGuard no_grad;
  const Tensor every_head = k.repeat_interleave(q.size(1) / k.size(1), 1);
  std::vector<Tensor> rows;
  for (const Part& part : parts(q, window)) {
    const bool causal = !part.mask.defined();
    const Tensor queries = batched(q, part.begin, part.end),
                 keys = batched(every_head, part.from, part.end);
    // The keys as the values of one more attention call.
    const auto [mixed, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        queries, keys, keys, 0.0, causal, causal ? std::nullopt : std::optional<Tensor>(part.mask));
    const Tensor expected = (queries * mixed).sum(-1) / std::sqrt(static_cast<double>(q.size(2)));
    rows.push_back((lse - expected).squeeze(0).t());
  }
  return rows.size() == 1 ? rows[0] : at::cat(rows, 0);
}

}  // namespace dex::model
