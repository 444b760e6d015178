#include "worker/evaluate/head_structure.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "worker/evaluate/head_scores.h"

namespace dex::evaluate {
namespace {

using Removed = std::vector<std::optional<RemovedDirections>>;

// One layer's heads: the eigenvalues of a shared map are the same for each, so they are taken once.
Removed removed_of(const model::DexOptions& options, const model::LayerAdaptation& layer,
                   double lambda, int64_t heads) {
  Removed out(static_cast<size_t>(heads));
  if (!layer.mask.defined()) return out;
  const at::Tensor map = model::projection_map(layer.branch);
  std::optional<RemovedDirections> shared;
  for (int64_t h = 0; h < heads; ++h) {
    if (layer.mask[h].item<double>() == 0) continue;
    if (!shared || map.dim() == 3)
      shared = removed_directions(map.dim() == 3 ? map[h] : map, options.sign_value() * lambda);
    out[static_cast<size_t>(h)] = shared;
  }
  return out;
}

std::vector<Removed> removed(const model::Adaptation& adaptation, int64_t heads) {
  std::vector<Removed> out;
  const auto form = adaptation.options.form;
  if (adaptation.layers.empty() || (form != model::Form::kPaper && form != model::Form::kHeadMean))
    return out;
  const std::vector<double> lambda = model::lambda_values(adaptation);
  for (size_t l = 0; l < adaptation.layers.size(); ++l)
    out.push_back(removed_of(adaptation.options, adaptation.layers[l], lambda[l], heads));
  return out;
}

}  // namespace

HeadStructure measure_head_structure(const model::Llama& llama, const model::Adaptation& adaptation,
                                     const std::vector<Document>& documents,
                                     const HeadStructureOptions& options,
                                     const std::function<void()>& between) {
  const at::NoGradGuard no_grad;
  if (documents.empty()) throw std::runtime_error("[measure_head_structure] there is no document");
  const model::Config& config = llama.config();
  const int64_t first = first_counted_row(documents, options.skip_rows);
  MapDistance distance(config.layers, config.heads);
  FeatureSimilarity features(options.cka ? config.layers : 0, config.heads, config.head_dim);
  MapSparsity sparsity(config.layers, config.heads, options.epsilon);

  for (const Document& document : documents) {
    const std::vector<int64_t> ids(document.ids.begin(), document.ids.end());
    const model::Batch batch = model::pack({ids});
    const bool counts = options.cosine && batch.tokens.size(0) > first;
    int64_t seen = 0;
    model::Observer observer;
    observer.on_heads = [&](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& o) {
      ++seen;
      if (options.cka) features.add(layer, o);
      if (!counts && !options.sparsity) return;
      for_each_attention_rows(q, k, config.sliding_window, [&](const AttentionRows& rows) {
        if (options.sparsity) sparsity.add(layer, rows);
        if (counts) distance.add(rows_from(rows, first));
      });
      if (counts) distance.close(layer);
    };
    llama.hidden(batch, adaptation, observer);
    if (seen != config.layers)
      throw std::runtime_error(
          "[measure_head_structure] this model's attention shows no maps: measure entropy and "
          "importance instead");
    if (between) between();
  }

  HeadStructure out;
  out.skip_rows = static_cast<int32_t>(first);
  if (options.cosine) out.cosine = distance.result();
  if (options.cka) out.cka = features.result();
  if (options.sparsity) {
    out.sparsity = sparsity.result();
    out.removed = removed(adaptation, config.heads);
  }
  return out;
}

}  // namespace dex::evaluate
