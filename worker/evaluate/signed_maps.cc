#include "worker/evaluate/signed_maps.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

namespace dex::evaluate {
namespace {

using at::Tensor;

// Queries and keys of two maps a head, in DiffLlama's order: first all first maps, then all second
// ones, and query head i reads key head i / (queries / keys).
std::pair<Tensor, Tensor> first_then_second(const Tensor& q, const Tensor& k,
                                            model::Attention attention) {
  if (attention == model::Attention::kDiffLlama) return {q, k};
  const auto parted = [](const Tensor& x) {
    const Tensor pairs = x.unflatten(1, {x.size(1) / 2, 2});
    return at::cat({pairs.select(2, 0), pairs.select(2, 1)}, 1);
  };
  // V2: both maps read the same keys.
  const bool shared_keys = attention == model::Attention::kSecondMapV2;
  return {parted(q), shared_keys ? at::cat({k, k}, 1) : parted(k)};
}

Tensor subtracted_rows(const AttentionRows& rows, const Tensor& share) {
  const int64_t heads = rows.maps.size(0) / 2, count = rows.maps.size(1);
  const Tensor own = share.size(0) == 1 ? share : share.narrow(0, rows.first, count);
  const Tensor factor = own.t().unsqueeze(-1).to(rows.maps.scalar_type());  // [heads, b, 1]
  return rows.maps.narrow(0, 0, heads) - factor * rows.maps.narrow(0, heads, heads);
}

Tensor with_uniform(const AttentionRows& rows, const Tensor& uniform) {
  const int64_t count = rows.maps.size(1), seen = rows.maps.size(2);
  const Tensor row = at::arange(rows.first, rows.first + count, at::kDouble).unsqueeze(1);
  const Tensor column = at::arange(seen, at::kDouble).unsqueeze(0);
  const Tensor share = column.le(row) / (row + 1);  // [b, seen]: 1/(i+1) of each j ≤ i
  return rows.maps + (uniform.view({-1, 1, 1}) * share).to(rows.maps.scalar_type());
}

}  // namespace

at::Tensor uniform_weights(const model::Adaptation& adaptation, size_t layer) {
  if (adaptation.layers.empty() || adaptation.options.form != model::Form::kUniformMap) return {};
  const at::NoGradGuard no_grad;
  const model::LayerAdaptation& from = adaptation.layers[layer];
  if (!from.mask.defined() || !from.branch.gate.defined()) return {};  // below its first layer
  const double strength = adaptation.options.sign_value() * model::lambda_values(adaptation)[layer];
  const Tensor out =
      from.mask.to(at::kDouble) * from.branch.gate.detach().to(at::kDouble) * strength;
  return out.count_nonzero().item<int64_t>() > 0 ? out : Tensor();
}

void for_each_map_rows(const at::Tensor& q, const at::Tensor& k, int64_t window,
                       const SignedMaps& how,
                       const std::function<void(const AttentionRows&)>& visit,
                       int64_t block_entries) {
  const at::NoGradGuard no_grad;
  if (!how.any()) return for_each_attention_rows(q, k, window, visit, block_entries);
  if (how.share.defined()) {
    const auto [queries, keys] = first_then_second(q, k, how.attention);
    return for_each_attention_rows(
        queries, keys, window,
        [&](const AttentionRows& rows) {
          visit({rows.first, subtracted_rows(rows, how.share), rows.window});
        },
        block_entries);
  }
  const Tensor constant = how.uniform.ne(0);
  for_each_attention_rows(
      q, k, window,
      [&](const AttentionRows& rows) {
        visit({rows.first, with_uniform(rows, how.uniform), rows.window, constant});
      },
      block_entries);
}

at::Tensor magnitude_entropy(const at::Tensor& q, const at::Tensor& k, int64_t window,
                             const SignedMaps& how, int64_t block_entries) {
  std::vector<Tensor> blocks;
  for_each_map_rows(
      q, k, window, how,
      [&](const AttentionRows& rows) {
        const Tensor size = rows.maps.abs().to(at::kDouble);
        const Tensor total = size.sum(-1);
        const Tensor nats = total.log() - at::xlogy(size, size).sum(-1) / total;
        blocks.push_back(at::where(total.gt(0), nats, at::zeros_like(nats)).clamp_min(0).t());
      },
      block_entries);
  return at::cat(blocks, 0);
}

}  // namespace dex::evaluate
