#include "worker/evaluate/head_structure.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "worker/evaluate/head_scores.h"
#include "worker/evaluate/signed_maps.h"

namespace dex::evaluate {

HeadStructure measure_head_structure(const model::Llama& llama, const model::Adaptation& adaptation,
                                     const std::vector<Document>& documents,
                                     const HeadStructureOptions& options,
                                     const std::function<void()>& between) {
  const at::NoGradGuard no_grad;
  if (documents.empty()) throw std::runtime_error("[measure_head_structure] there is no document");
  const model::Config& config = llama.config();
  const int64_t first = first_counted_row(documents, options.skip_rows);
  const int64_t heads = config.output_heads();
  MapDistance distance(config.layers, heads);
  FeatureSimilarity features(options.cka ? config.layers : 0, heads, config.output_width());
  MapSparsity sparsity(config.layers, heads, options.epsilon);

  for (const Document& document : documents) {
    const std::vector<int64_t> ids(document.ids.begin(), document.ids.end());
    const model::Batch batch = model::pack({ids});
    const bool counts = options.cosine && batch.tokens.size(0) > first;
    at::Tensor share;
    model::Observer observer;
    observer.on_second_map = [&](int64_t, const at::Tensor& of_layer) { share = of_layer; };
    observer.on_heads = [&](int64_t layer, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& o) {
      if (options.cka) features.add(layer, o);
      if (!counts && !options.sparsity) return;
      const SignedMaps how{.uniform = uniform_weights(adaptation, static_cast<size_t>(layer)),
                           .share = share,
                           .attention = config.attention};
      for_each_map_rows(q, k, config.sliding_window, how, [&](const AttentionRows& rows) {
        if (options.sparsity) sparsity.add(layer, rows);
        if (counts) distance.add(rows_from(rows, first));
      });
      if (counts) distance.close(layer);
    };
    llama.hidden(batch, adaptation, observer);
    if (between) between();
  }

  HeadStructure out;
  out.skip_rows = static_cast<int32_t>(first);
  if (options.cosine) out.cosine = distance.result();
  if (options.cka) out.cka = features.result();
  if (options.sparsity) {
    out.sparsity = sparsity.result();
    out.removed = removed_by(adaptation, config.heads);
  }
  return out;
}

}  // namespace dex::evaluate
