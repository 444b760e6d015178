#include "worker/model/causal_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
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

}  // namespace dex::model
