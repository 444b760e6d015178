#include "worker/train/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>

namespace dex::train {

AdamW::AdamW(FlatParameters& parameters, const Options& options)
    : parameters_(parameters),
      options_(options),
      first_(at::zeros_like(parameters.values())),
      second_(at::zeros_like(parameters.values())) {}

void AdamW::update(const Rates& rates) {
  const at::NoGradGuard no_grad;
  ++updates_;
  const at::Tensor step = at::full({}, static_cast<double>(updates_), at::kFloat);
  for (const model::Group group :
       {model::Group::kBase, model::Group::kAdded, model::Group::kBranch, model::Group::kLambda}) {
    const FlatParameters::Range range = parameters_.range(group);
    if (range.size == 0) continue;
    const auto part = [&](const at::Tensor& flat) {
      return flat.narrow(0, range.offset, range.size);
    };
    const bool decays = group == model::Group::kBase || group == model::Group::kAdded;
    const double decay = decays ? options_.weight_decay : 0.0;
    at::_fused_adamw_({part(parameters_.values())}, {part(parameters_.gradients())}, {part(first_)},
                      {part(second_)}, {}, {step}, rates[static_cast<size_t>(group)],
                      options_.beta1, options_.beta2, decay, options_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
}

void AdamW::restore(const at::Tensor& first, const at::Tensor& second, int64_t updates) {
  first_.copy_(first);
  second_.copy_(second);
  updates_ = updates;
}

}  // namespace dex::train
