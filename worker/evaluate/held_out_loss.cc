#include "worker/evaluate/held_out_loss.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

namespace dex::evaluate {

namespace {

// `losses`: w·CE of each token, `weights`: w; both [N] double.
void add_documents(const SupervisedBatch& batch, const at::Tensor& losses,
                   const at::Tensor& weights, std::vector<DocumentLoss>& out) {
  const auto& bounds = batch.batch.bounds;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    const auto sum = [first = bounds[i], rows = bounds[i + 1] - bounds[i]](const auto& values) {
      return values.narrow(0, first, rows).sum().template item<double>();
    };
    out.push_back({sum(losses), sum(weights)});
  }
}

}  // namespace

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
    const at::Tensor weights = batch.weights.to(at::kDouble);
    const at::Tensor weighed = losses.to(at::kDouble) * weights;
    sum += weighed.sum().item<double>();
    add_documents(batch, weighed, weights, out.documents);
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

std::vector<DocumentLoss> document_losses(const model::Llama& llama,
                                          const model::Adaptation& adaptation,
                                          std::span<const SupervisedBatch> batches,
                                          kernels::LinearCrossEntropy& cross_entropy,
                                          const std::function<void()>& between) {
  const at::NoGradGuard no_grad;
  std::vector<DocumentLoss> out;
  for (const SupervisedBatch& batch : batches) {
    const at::Tensor weights = batch.weights.to(at::kDouble);
    const at::Tensor losses = cross_entropy
                                  .row_losses(llama.hidden(batch.batch, adaptation),
                                              llama.lm_head(adaptation), batch.targets)
                                  .to(at::kDouble) *
                              weights;
    add_documents(batch, losses, weights, out);
    if (between) between();
  }
  return out;
}

}  // namespace dex::evaluate
