#include "worker/evaluate/branch_effect.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace dex::evaluate {
namespace {

double weighted_loss(const model::Llama& llama, const model::Adaptation& adaptation,
                     const SupervisedBatch& batch, const model::Observer& observer,
                     kernels::LinearCrossEntropy& cross_entropy) {
  const at::Tensor hidden = llama.hidden(batch.batch, adaptation, observer);
  const at::Tensor losses =
      cross_entropy.row_losses(hidden, llama.lm_head(adaptation), batch.targets);
  return (losses.to(at::kDouble) * batch.weights.to(at::kDouble)).sum().item<double>();
}

model::Adaptation without_branch(model::Adaptation adaptation) {
  for (model::LayerAdaptation& layer : adaptation.layers) layer.lambda = {};
  return adaptation;
}

}  // namespace

BranchMeter::BranchMeter(const model::Adaptation& adaptation) : adaptation_(adaptation) {
  if (!adaptation.options.has_branch()) return;
  const auto floor = static_cast<float>(adaptation.options.soft_floor);
  for (const model::LayerAdaptation& layer : adaptation.layers) {
    layers_.emplace_back();
    if (!layer.mask.defined()) continue;
    // Not the heads that only have their soft floor (method.md §3.4).
    const at::Tensor chosen = layer.mask.gt(floor).nonzero().flatten();
    if (chosen.numel() > 0) layers_.back().heads = chosen;
  }
}

model::Observer BranchMeter::observer() {
  model::Observer observer;
  if (layers_.empty()) return observer;
  observer.on_branch = [this](int64_t layer, const at::Tensor& o,
                              const at::Tensor& scaled_difference) {
    add(layer, o, scaled_difference);
  };
  return observer;
}

void BranchMeter::add(int64_t index, const at::Tensor& o, const at::Tensor& scaled_difference) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  if (!layer.heads.defined()) return;
  // Sums of one batch in fp32, of all batches in fp64. The sign s is taken out again: r and the
  // cosine are of λD.
  const at::Tensor heads = o.index_select(1, layer.heads).flatten();
  const at::Tensor difference = scaled_difference.index_select(1, layer.heads).flatten();
  layer.o += at::dot(heads, heads).item<double>();
  layer.difference += at::dot(difference, difference).item<double>();
  layer.product += adaptation_.options.sign_value() * at::dot(heads, difference).item<double>();
}

BranchEffect BranchMeter::result() const {
  BranchEffect out;
  if (layers_.empty()) return out;
  const std::vector<double> lambda = model::lambda_values(adaptation_);
  double total = 0;
  int64_t counted = 0;
  for (size_t l = 0; l < layers_.size(); ++l) {
    BranchEffect::Layer layer;
    layer.lambda = lambda[l];
    if (layers_[l].heads.defined()) {
      const double o = std::sqrt(layers_[l].o), difference = std::sqrt(layers_[l].difference);
      layer.ratio = o > 0 ? difference / o : 0.0;
      layer.cosine = o > 0 && difference > 0 ? layers_[l].product / (o * difference) : 0.0;
      total += *layer.ratio;
      ++counted;
    }
    out.layers.push_back(layer);
  }
  if (counted == 0) return out;
  out.value = total / static_cast<double>(counted);
  out.verdict = verdict(out.value);
  return out;
}

BranchEffect measure_branch_effect(const model::Llama& llama, const model::Adaptation& adaptation,
                                   std::span<const SupervisedBatch> batches,
                                   kernels::LinearCrossEntropy& cross_entropy,
                                   const std::function<void()>& between) {
  const at::NoGradGuard no_grad;
  if (!adaptation.options.has_branch()) return {};
  BranchMeter meter(adaptation);
  const model::Adaptation plain = without_branch(adaptation);
  double with = 0, without = 0, weight = 0;
  int64_t tokens = 0;
  for (const SupervisedBatch& batch : batches) {
    with += weighted_loss(llama, adaptation, batch, meter.observer(), cross_entropy);
    without += weighted_loss(llama, plain, batch, {}, cross_entropy);
    weight += batch.weight;
    tokens += batch.tokens();
    if (between) between();
  }
  BranchEffect out = meter.result();
  out.tokens = tokens;
  if (weight > 0 && out.verdict != BranchEffect::Verdict::kNotApplicable)
    out.ce_delta = (without - with) / weight;
  return out;
}

}  // namespace dex::evaluate
