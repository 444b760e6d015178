#include "worker/evaluate/head_scores.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "worker/evaluate/attention_rows.h"
#include "worker/evaluate/head_tables.h"

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

// ∂L/∂ξ of one batch added to `sum` as absolute values, a document each.
void add_importance(const SupervisedBatch& batch, const std::vector<at::Tensor>& gates,
                    const at::Tensor& hidden, const at::Tensor& head,
                    kernels::LinearCrossEntropy& cross_entropy, MeanOfMeans& sum) {
  // Each document's loss is its own mean; the batch's loss is their sum, so documents don't see
  // each other.
  at::Tensor weights = batch.weights.clone();
  for (size_t i = 0; i + 1 < batch.batch.bounds.size(); ++i) {
    at::Tensor own = weights.slice(0, batch.batch.bounds[i], batch.batch.bounds[i + 1]);
    const double total = own.sum().item<double>();
    if (total > 0) {
      own.div_(total);
      ++sum.documents;
    }
  }
  // To the gates alone: on an adapted model every other trained tensor would get a gradient as
  // well.
  cross_entropy.loss(hidden, head, batch.targets, weights)
      .backward({}, /*retain_graph=*/false, /*create_graph=*/false, at::TensorList(gates));
  for (size_t l = 0; l < gates.size(); ++l) {
    sum.sum[static_cast<int64_t>(l)] += gates[l].grad().to(at::kDouble).abs().sum(0);
  }
}

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
  const int64_t layers = llama.config().layers, heads = llama.config().heads;
  const int64_t first = first_counted_row(documents, options.skip_rows);
  const auto zeros = [&] { return at::zeros({layers, heads}, at::kDouble); };
  MeanOfMeans nats{zeros()}, normalized{zeros()}, importance{zeros()};

  for (const SupervisedBatch& batch : supervise_in_batches(documents, options.batch_tokens)) {
    const auto& bounds = batch.batch.bounds;
    model::Observer observer;
    if (options.entropy) {
      observer.on_heads = [&](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor&) {
        for (size_t i = 0; i + 1 < bounds.size(); ++i) {
          if (bounds[i + 1] - bounds[i] <= first) continue;
          add_rows(row_entropy(q.slice(0, bounds[i], bounds[i + 1]),
                               k.slice(0, bounds[i], bounds[i + 1]), llama.config().sliding_window),
                   first, layer, nats, normalized);
        }
      };
    }
    if (options.importance) {
      for (int64_t l = 0; l < layers; ++l) {
        observer.head_gates.push_back(
            at::ones({static_cast<int64_t>(bounds.size()) - 1, heads}).requires_grad_(true));
      }
    }
    {
      // Entropy alone needs neither a graph nor the head.
      const at::AutoGradMode grad(options.importance);
      const at::Tensor hidden = llama.hidden(batch.batch, adaptation, observer);
      if (options.importance) {
        // Where all weights are trained, the head would get a gradient that nobody wants here.
        const at::Tensor head = llama.lm_head(adaptation).detach();
        add_importance(batch, observer.head_gates, hidden, head, cross_entropy, importance);
      }
    }
    for (size_t i = 0; i + 1 < bounds.size(); ++i)
      nats.documents += bounds[i + 1] - bounds[i] > first;
    if (between) between();
  }
  normalized.documents = nats.documents;

  HeadScores scores;
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
