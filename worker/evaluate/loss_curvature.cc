#include "worker/evaluate/loss_curvature.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <stdexcept>

namespace dex::evaluate {
namespace {

// The trained tensors of an adaptation as one vector θ. The adaptation's tensors become leaves that
// read θ's memory and add their gradients into one buffer; it outlives this object.
class TrainedVector {
 public:
  explicit TrainedVector(model::Adaptation& adaptation) {
    const auto trainables = model::trainables(adaptation);
    int64_t size = 0;
    for (const model::Trainable& each : trainables) size += each.tensor->numel();
    if (size == 0) throw std::runtime_error("[loss_curvature] this adapter has no trained tensor");
    values_ = at::empty({size}, at::kFloat);
    gradients_ = at::zeros({size}, at::kFloat);
    int64_t offset = 0;
    for (const model::Trainable& each : trainables) {
      const auto place = [&](const at::Tensor& flat) {
        return flat.narrow(0, offset, each.tensor->numel()).view(each.tensor->sizes());
      };
      at::Tensor value = place(values_);
      value.copy_(each.tensor->detach());
      at::Tensor leaf = value.detach().requires_grad_(true);
      leaf.mutable_grad() = place(gradients_);
      offset += each.tensor->numel();
      *each.tensor = leaf;
    }
  }

  [[nodiscard]] at::Tensor values() const { return values_.clone(); }
  void set(const at::Tensor& theta) {
    const at::NoGradGuard no_grad;
    values_.copy_(theta);
    gradients_.zero_();
  }
  [[nodiscard]] at::Tensor gradients() const { return gradients_.clone(); }

 private:
  at::Tensor values_, gradients_;  // [M] fp32
};

model::Adaptation trained_adaptation(const model::Llama& llama, const model::Weights& weights,
                                     const model::Adaptation& adaptation) {
  if (!adaptation.layers.empty()) return adaptation;
  model::DexOptions control;  // K, V, O without a branch: method.md §2.7
  control.form = model::Form::kNone;
  control.train = model::Train::kKvoOnly;
  return model::initial_adaptation(control, llama.config(), weights, {}, 0);
}

}  // namespace

int64_t not_settled(const LossCurvature& curvature) {
  return std::ranges::count(curvature.documents, false, &HessianEigenvalue::converged);
}

LossCurvature measure_loss_curvature(const model::Llama& llama, const model::Weights& weights,
                                     const model::Adaptation& adaptation,
                                     const std::vector<Document>& documents,
                                     kernels::LinearCrossEntropy& cross_entropy,
                                     const HessianOptions& options,
                                     const std::function<void()>& between) {
  model::Adaptation trained = trained_adaptation(llama, weights, adaptation);
  TrainedVector vector(trained);
  const at::Tensor theta = vector.values();
  LossCurvature out;
  out.parameters = theta.numel();
  for (const Document& document : documents) {
    const SupervisedBatch batch = supervise({document});
    if (batch.weight <= 0) throw std::runtime_error("[loss_curvature] a document predicts nothing");
    const auto gradient = [&](const at::Tensor& at) {
      vector.set(at);
      const at::Tensor hidden = llama.hidden(batch.batch, trained);
      cross_entropy
          .loss(hidden, llama.lm_head(trained), batch.targets, batch.weights.div(batch.weight))
          .backward();
      if (between) between();
      return vector.gradients();
    };
    out.documents.push_back(dominant_hessian_eigenvalue(gradient, theta, options));
    out.negative_share += out.documents.back().value < 0;
  }
  if (!documents.empty()) out.negative_share /= static_cast<double>(documents.size());
  return out;
}

}  // namespace dex::evaluate
