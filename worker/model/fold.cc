#include "worker/model/fold.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>

#include <stdexcept>
#include <string>

#include "worker/kernels/check.h"
#include "worker/kernels/dex_out.h"
#include "worker/model/dex_branch.h"

namespace dex::model {

namespace {

double lambda_value(const LayerAdaptation& layer) {
  const at::Tensor& learned = layer.branch.lambda_learn;
  return layer.lambda.at(learned.defined() ? learned.item<double>() : 0.0);
}

void require_foldable(const DexOptions& options) {
  const std::string reason = not_foldable(options);
  if (!reason.empty()) throw std::runtime_error("[fold] " + reason);
}

at::Tensor as(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? tensor.detach().to(type) : tensor;
}

}  // namespace

at::Tensor folded_o_proj(const at::Tensor& w_o, const LayerAdaptation& layer,
                         const DexOptions& options, double lambda_scale) {
  require_foldable(options);
  at::NoGradGuard no_grad;
  const auto type = w_o.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor wide = as(w_o, type);
  if (!options.has_branch() || !layer.mask.defined()) return wide;
  const double lambda = lambda_value(layer) * lambda_scale;
  if (lambda == 0 || layer.mask.count_nonzero().item<int64_t>() == 0) return wide;
  return kernels::fold_w_o(wide.contiguous(), as(projection_map(layer.branch), type),
                           as(layer.branch.gate, type), at::full({1}, lambda, type),
                           as(layer.mask, type), options.sign_value());
}

at::Tensor full_map(const LayerAdaptation& layer, const DexOptions& options, const Config& config) {
  require_foldable(options);
  at::NoGradGuard no_grad;
  const int64_t width = config.heads * config.head_dim;
  const at::Tensor identity = at::eye(width, at::kDouble);
  if (!options.has_branch() || !layer.mask.defined()) return identity;
  // Push the identity through: row i is what unit input i becomes.
  const at::Tensor rows = identity.view({width, config.heads, config.head_dim});
  const at::Tensor d = kernels::dex_difference(rows, as(projection_map(layer.branch), at::kDouble),
                                               as(layer.branch.gate, at::kDouble));
  const at::Tensor scaled = d * as(layer.mask, at::kDouble).view({1, -1, 1}) *
                            (options.sign_value() * lambda_value(layer));
  return (rows + scaled).reshape({width, width});
}

Weights folded_weights(const Weights& base, const Adaptation& adaptation) {
  require_foldable(adaptation.options);
  Weights folded = replaced_weights(base, adaptation);
  for (at::Tensor* end : {&folded.embed, &folded.norm}) *end = end->detach();
  // A tied head stays the same tensor as the embedding.
  folded.lm_head = base.lm_head.is_same(base.embed) ? folded.embed : folded.lm_head.detach();
  for (size_t i = 0; i < adaptation.layers.size(); ++i) {
    const LayerAdaptation& from = adaptation.layers[i];
    LayerWeights& to = folded.layers[i];
    for (const auto& [name, weight] : layer_places(to)) {
      if (weight->defined()) *weight = weight->detach();
    }
    const auto merge = [&](Linear linear, at::Tensor& weight) {
      if (from.lora[linear].defined()) weight = merged(weight, from.lora[linear]);
    };
    merge(Linear::kQ, to.q);
    merge(Linear::kK, to.k);
    merge(Linear::kV, to.v);
    merge(Linear::kO, to.o);
    merge(Linear::kGate, to.gate);
    merge(Linear::kUp, to.up);
    merge(Linear::kDown, to.down);
    if (adaptation.options.has_branch()) to.o = folded_o_proj(to.o, from, adaptation.options);
  }
  return folded;
}

Certificate certificate(const at::Tensor& logits, const at::Tensor& reference) {
  kernels::check(logits.sizes() == reference.sizes(), "certificate",
                 "logits must have the reference's shape", logits);
  const at::Tensor difference = (logits.to(at::kDouble) - reference.to(at::kDouble)).abs();
  return {difference.max().item<double>(), difference.mean().item<double>()};
}

}  // namespace dex::model
