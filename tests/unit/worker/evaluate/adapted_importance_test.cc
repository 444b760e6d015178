// Importance on adapted models (method.md §4.2): the gate is behind the branch, on what o_proj
// reads. So a head's gate of 1 ± ε is its columns of W_O as trained, and of the A of a LoRA term
// beside it, times that; where the branch mixes heads or is not linear, a gate before it would give
// other values.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/unit/worker/serve/tiny_adapters.h"
#include "tests/unit/worker/train/tiny_model.h"
#include "worker/evaluate/head_scores.h"

namespace dex::evaluate {
namespace {

// In fp64: differences of losses know eight digits then.
model::Weights in_fp64(model::Weights weights) {
  const auto widen = [](at::Tensor& tensor) { tensor = tensor.to(at::kDouble); };
  for (model::LayerWeights& layer : weights.layers) {
    for (const auto& [name, tensor] : model::layer_places(layer)) {
      if (tensor->defined()) widen(*tensor);
    }
  }
  widen(weights.embed);
  widen(weights.norm);
  weights.lm_head = weights.embed;
  return weights;
}

model::Adaptation in_fp64(model::Adaptation adaptation) {
  for (const model::Trainable& entry : model::trainables(adaptation))
    *entry.tensor = entry.tensor->to(at::kDouble);
  for (model::LayerAdaptation& layer : adaptation.layers) {
    if (layer.mask.defined()) layer.mask = layer.mask.to(at::kDouble);
  }
  return adaptation;
}

class AdaptedImportanceTest : public ::testing::TestWithParam<size_t> {
 protected:
  AdaptedImportanceTest() {
    at::set_num_threads(1);
    for (const auto& row : train::testing::tiny_rows(3, 40)) {
      rows_.push_back(row);
      ones_.emplace_back(row.size(), 1.0F);
    }
    for (size_t r = 0; r < rows_.size(); ++r) documents_.push_back({rows_[r], ones_[r]});
  }

  // Mean loss of a document, a head's gate at `value`.
  double loss(const Document& document, size_t layer, int64_t head, double value) const {
    model::Adaptation gated = adapted_;
    model::LayerAdaptation& at_layer = gated.layers[layer];
    const int64_t d = config_.head_dim;
    const at::Tensor columns = at::ones({config_.heads * d}, at::kDouble);
    columns.slice(0, head * d, (head + 1) * d).fill_(value);
    at_layer.o = (at_layer.o.defined() ? at_layer.o : weights_.layers[layer].o) * columns;
    model::LowRank& beside = at_layer.lora[model::Linear::kO];
    if (beside.defined()) beside.a = beside.a * columns;
    const SupervisedBatch batch = supervise({document});
    const at::Tensor rows =
        model::Llama(config_, weights_).logits(batch.batch, gated).log_softmax(-1).slice(0, 0, -1);
    return -rows.gather(1, batch.targets.slice(0, 0, -1).unsqueeze(1)).mean().item<double>();
  }

  const model::Config config_ = train::testing::tiny_config();
  const model::Weights weights_ = in_fp64(train::testing::tiny_weights(config_));
  const model::Adaptation adapted_ =
      in_fp64(serve::testing::tiny_adapter(serve::testing::tiny_options().at(GetParam()), 50, "")
                  .adaptation);
  std::vector<std::vector<int32_t>> rows_;
  std::vector<std::vector<float>> ones_;
  std::vector<Document> documents_;
};

TEST_P(AdaptedImportanceTest, IsThatOfAGateBehindTheBranch) {
  const model::Llama llama(config_, weights_);
  kernels::LinearCrossEntropy cross_entropy;
  const HeadScoreOptions options{.entropy = false};
  const auto found = measure_heads(llama, adapted_, documents_, options, cross_entropy).importance;
  const auto of_base = measure_heads(llama, {}, documents_, options, cross_entropy).importance;
  constexpr double kStep = 1e-5;
  for (size_t layer = 0; layer < found.size(); ++layer) {
    for (size_t head = 0; head < found[layer].size(); ++head) {
      double mean = 0;
      for (const Document& document : documents_) {
        const auto at_gate = [&](double value) {
          return loss(document, layer, static_cast<int64_t>(head), value);
        };
        mean += std::abs(at_gate(1 + kStep) - at_gate(1 - kStep)) / (2 * kStep) / 3;
      }
      EXPECT_NEAR(found[layer][head], mean, 1e-8 + 2e-5 * mean) << layer << " " << head;
      EXPECT_NE(found[layer][head], of_base[layer][head]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Adapters, AdaptedImportanceTest,
                         ::testing::Range(size_t{0}, serve::testing::tiny_options().size()));

}  // namespace
}  // namespace dex::evaluate
