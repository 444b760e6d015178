#include "worker/evaluate/attention_rows.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace dex::evaluate {
namespace {

// Far below any logit's distance from its row's largest, and exp of it is 0 in fp32 and fp64. Not
// −∞, since 0·(−∞) is no number.
constexpr double kNothing = -1e4;

// Which of the columns 0 … first + count − 1 each of the last `count` rows does not see, [count,
// first + count].
at::Tensor hidden_columns(int64_t first, int64_t count, int64_t window) {
  const at::Tensor row = at::arange(first, first + count).unsqueeze(1);
  const at::Tensor column = at::arange(first + count).unsqueeze(0);
  at::Tensor hidden = column.gt(row);
  if (window > 0) hidden.logical_or_(column.le(row - window));
  return hidden;
}

// Scaled logits of rows first … first + b − 1, [H, b, first + b]; −∞ where a row sees nothing.
void for_each_logits(const at::Tensor& q, const at::Tensor& k, int64_t window,
                     int64_t block_entries,
                     const std::function<void(int64_t first, at::Tensor& logits)>& visit) {
  const at::NoGradGuard no_grad;
  const int64_t length = q.size(0), heads = q.size(1), width = q.size(2), kv_heads = k.size(1);
  const int64_t group = heads / kv_heads;  // heads of one key lie together
  const at::Tensor queries =
      (q / std::sqrt(static_cast<double>(width))).transpose(0, 1).contiguous();  // [H, T, d]
  const at::Tensor keys = k.permute({1, 2, 0}).contiguous();                     // [K, d, T]
  const int64_t most = std::clamp<int64_t>(block_entries / (heads * length), 1, length);
  for (int64_t first = 0; first < length; first += most) {
    const int64_t rows = std::min(most, length - first), seen = first + rows;
    const at::Tensor block =
        queries.narrow(1, first, rows).reshape({kv_heads, group * rows, width});
    at::Tensor logits = at::bmm(block, keys.narrow(2, 0, seen)).view({heads, rows, seen});
    logits.masked_fill_(hidden_columns(first, rows, window),
                        -std::numeric_limits<double>::infinity());
    visit(first, logits);
  }
}

}  // namespace

void for_each_attention_rows(const at::Tensor& q, const at::Tensor& k, int64_t window,
                             const std::function<void(const AttentionRows&)>& visit,
                             int64_t block_entries) {
  for_each_logits(q, k, window, block_entries, [&](int64_t first, at::Tensor& logits) {
    visit({first, logits.softmax(-1), window});
  });
}

AttentionRows rows_from(const AttentionRows& rows, int64_t first) {
  const int64_t skip = std::clamp<int64_t>(first - rows.first, 0, rows.maps.size(1));
  return {rows.first + skip, rows.maps.slice(1, skip), rows.window, rows.beyond_window};
}

at::Tensor row_entropy(const at::Tensor& q, const at::Tensor& k, int64_t window,
                       int64_t block_entries) {
  std::vector<at::Tensor> blocks;
  for_each_logits(q, k, window, block_entries, [&](int64_t, at::Tensor& logits) {
    at::Tensor& below = logits.sub_(logits.amax(-1, true)).clamp_min_(kNothing);  // z − m
    at::Tensor weights = below.exp();
    const at::Tensor total = weights.sum(-1, false, at::kDouble);
    const at::Tensor mean = weights.mul_(below).sum(-1, false, at::kDouble) / total;
    blocks.push_back((total.log() - mean).t());  // [b, H]
  });
  return at::cat(blocks, 0);
}

}  // namespace dex::evaluate
