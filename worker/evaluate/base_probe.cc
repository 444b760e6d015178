#include "worker/evaluate/base_probe.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>

namespace dex::evaluate {
namespace {

// Few enough that both models' logits of them stay small: 64 · 49,152 floats are 12.6 MB.
constexpr int64_t kProbeRows = 64;

// Of each row, in fp64, added up over the vocabulary in fp64.
struct RowDivergence {
  at::Tensor kl, base_loss, loss;  // [n]
};

at::Tensor log_distribution(const at::Tensor& hidden, const at::Tensor& head) {
  return at::log_softmax(at::mm(hidden, head.t()), 1);
}

at::Tensor loss_of(const at::Tensor& log_probabilities, const at::Tensor& targets) {
  return log_probabilities.gather(1, targets.unsqueeze(1)).squeeze(1).neg().to(at::kDouble);
}

RowDivergence divergence(const at::Tensor& base, const at::Tensor& adapted,
                         const at::Tensor& targets) {
  return {(base.exp() * (base - adapted)).sum(-1, false, at::kDouble), loss_of(base, targets),
          loss_of(adapted, targets)};
}

}  // namespace

BaseProbe::BaseProbe(const model::Llama& llama, const model::Adaptation& base,
                     std::vector<SupervisedBatch> batches, const std::function<void()>& between)
    : llama_(llama), base_head_(llama.lm_head(base)) {
  const at::NoGradGuard no_grad;
  for (SupervisedBatch& batch : batches) {
    Part part;
    part.rows = batch.targets.ge(0).nonzero().squeeze(1);
    if (part.rows.size(0) == 0) continue;
    part.targets = batch.targets.index_select(0, part.rows);
    part.hidden = llama.hidden(batch.batch, base).index_select(0, part.rows);
    part.batch = std::move(batch);
    parts_.push_back(std::move(part));
    if (between) between();
  }
  if (parts_.empty()) throw std::runtime_error("[BaseProbe] no token of the probe has a target");
}

BaseDivergence BaseProbe::measure(const model::Adaptation& adaptation,
                                  const std::function<void()>& between) const {
  const at::NoGradGuard no_grad;
  const at::Tensor head = llama_.lm_head(adaptation);
  BaseDivergence out;
  for (const Part& part : parts_) {
    const int64_t count = part.rows.size(0);
    const at::Tensor hidden =
        llama_.hidden(part.batch.batch, adaptation).index_select(0, part.rows);
    const at::Tensor kl = at::empty({count}, at::kDouble);
    for (int64_t at = 0; at < count; at += kProbeRows) {
      const int64_t rows = std::min(kProbeRows, count - at);
      const RowDivergence found = divergence(
          log_distribution(part.hidden.narrow(0, at, rows), base_head_),
          log_distribution(hidden.narrow(0, at, rows), head), part.targets.narrow(0, at, rows));
      kl.narrow(0, at, rows).copy_(found.kl);
      out.base_loss += found.base_loss.sum().item<double>();
      out.loss += found.loss.sum().item<double>();
    }
    const auto& bounds = part.batch.batch.bounds;
    int64_t first = 0;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      // Every token of a document but its last has a target.
      const int64_t tokens = bounds[i + 1] - bounds[i] - 1;
      out.document_kl.push_back(kl.narrow(0, first, tokens).sum().item<double>());
      out.document_tokens.push_back(tokens);
      first += tokens;
    }
    out.kl += kl.sum().item<double>();
    out.tokens += count;
    if (between) between();
  }
  const auto tokens = static_cast<double>(out.tokens);
  out.kl = out.kl < 0 ? 0 : out.kl / tokens;  // rounding can put a KL of about 0 below it
  out.base_loss /= tokens;
  out.loss /= tokens;
  return out;
}

}  // namespace dex::evaluate
