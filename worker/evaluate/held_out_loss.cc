#include "worker/evaluate/held_out_loss.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

namespace dex::evaluate {

HeldOut held_out_loss(const model::Llama& llama, const model::Adaptation& adaptation,
                      std::span<const SupervisedBatch> batches,
                      kernels::LinearCrossEntropy& cross_entropy,
                      const std::function<void()>& between, const model::Observer& observer) {
  const at::NoGradGuard no_grad;
  HeldOut out;
  double sum = 0, weight = 0;
  int64_t hits = 0;
  for (const SupervisedBatch& batch : batches) {
    at::Tensor best;
    const at::Tensor hidden = llama.hidden(batch.batch, adaptation, observer);
    const at::Tensor losses =
        cross_entropy.row_losses(hidden, llama.lm_head(adaptation), batch.targets, &best);
    sum += (losses.to(at::kDouble) * batch.weights.to(at::kDouble)).sum().item<double>();
    hits += best.eq(batch.targets).logical_and(batch.targets.ge(0)).sum().item<int64_t>();
    weight += batch.weight;
    out.labels += batch.labels;
    out.tokens += batch.tokens();
    if (between) between();
  }
  if (weight <= 0) throw std::runtime_error("[held_out_loss] no held-out token has a label");
  out.loss = sum / weight;
  out.token_accuracy = static_cast<double>(hits) / static_cast<double>(out.labels);
  return out;
}

}  // namespace dex::evaluate
