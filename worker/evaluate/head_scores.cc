#include "worker/evaluate/head_scores.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>

#include "worker/evaluate/attention_rows.h"
#include "worker/evaluate/head_tables.h"
#include "worker/evaluate/signed_maps.h"

namespace dex::evaluate {
namespace {

// Sum over documents of the mean over a document's rows, and how many documents had such rows.
struct MeanOfMeans {
  at::Tensor sum;  // [L, H] fp64
  int64_t documents = 0;

  HeadTable table() const {
    return table_of(sum / static_cast<double>(std::max<int64_t>(1, documents)));
  }
};

// Adds one document's rows [first, T) of one layer, of entropy [T, H] fp64: in nats and as
// H/ln(i+1). Row 0 has one entry: entropy 0 and no normalisation, so it never counts.
void add_rows(const at::Tensor& entropy, int64_t first, int64_t layer, MeanOfMeans& nats,
              MeanOfMeans& normalized) {
  const at::Tensor rows = entropy.slice(0, first);
  const at::Tensor limit =
      at::arange(first + 1, entropy.size(0) + 1, at::kDouble).log().unsqueeze(1);
  nats.sum[layer] += rows.mean(0);
  normalized.sum[layer] += (rows / limit).mean(0);
}

// Each document's loss is its own mean; the batch's loss is their sum, so documents don't see each
// other. Documents without a label count for nothing.
at::Tensor document_weights(const SupervisedBatch& batch, int64_t& documents) {
  at::Tensor weights = batch.weights.clone();
  for (size_t i = 0; i + 1 < batch.batch.bounds.size(); ++i) {
    at::Tensor own = weights.slice(0, batch.batch.bounds[i], batch.batch.bounds[i + 1]);
    const double total = own.sum().item<double>();
    if (total > 0) {
      own.div_(total);
      ++documents;
    }
  }
  return weights;
}

// ∂L/∂ξ of one batch added to `sum` as absolute values, a document each. `inputs` is what each
// layer read, then what the last one wrote, of a pass without a graph: each layer is computed once
// more for its own backward, so that only one layer's activations are held at a time. Empties
// `inputs`. `head` is the model's, in their type and without a gradient.
void add_importance(const model::Llama& llama, const model::Adaptation& adaptation,
                    const SupervisedBatch& batch, std::vector<at::Tensor>& inputs,
                    const at::Tensor& head, kernels::LinearCrossEntropy& cross_entropy,
                    MeanOfMeans& sum) {
  const at::AutoGradMode grad(true);
  const at::Tensor weights = document_weights(batch, sum.documents);
  at::Tensor x = inputs.back().requires_grad_(true);
  cross_entropy.loss(llama.normed(x, adaptation), head, batch.targets, weights)
      .backward({}, /*retain_graph=*/false, /*create_graph=*/false, at::TensorList(x));
  const int64_t layers = llama.config().layers, heads = llama.config().output_heads();
  const auto documents = static_cast<int64_t>(batch.batch.bounds.size()) - 1;
  model::Observer gated;
  gated.head_gates.resize(static_cast<size_t>(layers));
  for (int64_t l = layers - 1; l >= 0; --l) {
    const at::Tensor from_above = x.grad();
    inputs.pop_back();
    x = inputs.back().requires_grad_(true);
    at::Tensor& gate = gated.head_gates[static_cast<size_t>(l)];
    gate = at::ones({documents, heads}, x.options()).requires_grad_(true);
    // To gate and input alone: on an adapted model every trained tensor would get a gradient.
    const std::vector<at::Tensor> wanted = {gate, x};
    llama.block(l, x, batch.batch, adaptation, gated)
        .backward(from_above, /*retain_graph=*/false, /*create_graph=*/false,
                  at::TensorList(wanted));
    sum.sum[l] += gate.grad().to(at::kDouble).abs().sum(0);
    gate.reset();
  }
}

// Entropy of each row of one document's maps of a layer, [T, H] fp64.
at::Tensor entropy_of_rows(const at::Tensor& q, const at::Tensor& k, int64_t window,
                           const SignedMaps& how) {
  return how.any() ? magnitude_entropy(q, k, window, how) : row_entropy(q, k, window);
}

// Adds the documents of a batch that have rows from `first` on to both means, by way of the
// functions that it gives `observer`. `magnitudes` is set where a map is signed.
struct EntropyPass {
  const model::Config& config;
  const model::Adaptation& adaptation;
  const std::vector<int64_t>& bounds;
  int64_t first;
  bool signed_entropy;

  void watch(model::Observer& observer, MeanOfMeans& nats, MeanOfMeans& normalized,
             bool& magnitudes) const {
    const auto share = std::make_shared<at::Tensor>();  // of the layer that comes next
    observer.on_second_map = [share](int64_t, const at::Tensor& of_layer) { *share = of_layer; };
    observer.on_heads = [=, this, &nats, &normalized, &magnitudes](
                            int64_t layer, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor&) {
      SignedMaps how{.share = *share, .attention = config.attention};
      if (signed_entropy) how.uniform = uniform_weights(adaptation, static_cast<size_t>(layer));
      magnitudes = magnitudes || how.any();
      for (size_t i = 0; i + 1 < bounds.size(); ++i) {
        const int64_t begin = bounds[i], end = bounds[i + 1];
        if (end - begin <= first) continue;
        SignedMaps own = how;
        if (own.share.defined() && own.share.size(0) > 1)
          own.share = own.share.slice(0, begin, end);
        add_rows(entropy_of_rows(q.slice(0, begin, end), k.slice(0, begin, end),
                                 config.sliding_window, own),
                 first, layer, nats, normalized);
      }
    };
  }
};

}  // namespace

int32_t first_counted_row(const std::vector<Document>& documents, int32_t skip_rows) {
  const bool some = std::any_of(documents.begin(), documents.end(), [&](const Document& document) {
    return static_cast<int64_t>(document.ids.size()) > skip_rows;
  });
  return std::max(1, some ? skip_rows : 1);
}

HeadScores measure_heads(const model::Llama& llama, const model::Adaptation& adaptation,
                         const std::vector<Document>& documents, const HeadScoreOptions& options,
                         kernels::LinearCrossEntropy& cross_entropy,
                         const std::function<void()>& between) {
  if (documents.empty())
    throw std::runtime_error("[measure_heads] there is no calibration document");
  const int64_t layers = llama.config().layers, heads = llama.config().output_heads();
  const int64_t first = first_counted_row(documents, options.skip_rows);
  const auto zeros = [&] { return at::zeros({layers, heads}, at::kDouble); };
  MeanOfMeans nats{zeros()}, normalized{zeros()}, importance{zeros()};
  HeadScores scores;
  const auto in_type = [&](const at::Tensor& tensor) {
    return options.exact ? tensor.to(at::kDouble) : tensor;
  };
  // Where all weights are trained, the head would get a gradient that nobody wants here.
  const at::Tensor head =
      options.importance ? in_type(llama.lm_head(adaptation).detach()) : at::Tensor();

  for (const SupervisedBatch& batch : supervise_in_batches(documents, options.batch_tokens)) {
    const auto& bounds = batch.batch.bounds;
    model::Observer observer;
    const EntropyPass entropy{llama.config(), adaptation, bounds, first, options.signed_entropy};
    if (options.entropy) entropy.watch(observer, nats, normalized, scores.entropy_of_magnitudes);
    {
      const at::NoGradGuard no_graph;
      std::vector<at::Tensor> inputs = {in_type(llama.embedded(batch.batch, adaptation))};
      for (int64_t l = 0; l < layers; ++l) {
        at::Tensor x = llama.block(l, inputs.back(), batch.batch, adaptation, observer);
        if (!options.importance) inputs.pop_back();
        inputs.push_back(std::move(x));
      }
      if (options.importance)
        add_importance(llama, adaptation, batch, inputs, head, cross_entropy, importance);
    }
    for (size_t i = 0; i + 1 < bounds.size(); ++i)
      nats.documents += bounds[i + 1] - bounds[i] > first;
    if (between) between();
  }
  normalized.documents = nats.documents;

  scores.sequences = static_cast<int64_t>(documents.size());
  for (const Document& document : documents)
    scores.tokens += static_cast<int64_t>(document.ids.size());
  scores.skip_rows = static_cast<int32_t>(first);
  scores.short_sequences = first < options.skip_rows;
  if (options.entropy) {
    if (nats.documents == 0)
      throw std::runtime_error("[measure_heads] every calibration document has one token");
    scores.entropy_normalized = normalized.table();
    scores.entropy_nats = scores.short_sequences ? scores.entropy_normalized : nats.table();
  }
  if (options.importance) {
    if (importance.documents == 0)
      throw std::runtime_error("[measure_heads] no calibration document has a label");
    scores.importance = importance.table();
  }
  return scores;
}

}  // namespace dex::evaluate
