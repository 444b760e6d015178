#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "worker/evaluate/feature_similarity.h"
#include "worker/evaluate/map_distance.h"
#include "worker/evaluate/map_sparsity.h"
#include "worker/evaluate/removed_directions.h"
#include "worker/evaluate/supervised_batch.h"
#include "worker/model/llama.h"

namespace dex::evaluate {

struct HeadStructureOptions {
  bool cosine = true;
  bool cka = true;
  bool sparsity = true;
  int32_t skip_rows = 32;  // i_min of the cosine distance; the others count every row
  double epsilon = 1e-3;   // below it an attention weight counts as nothing
};

// How a model's heads differ from each other, beside the scores by which they are selected.
struct HeadStructure {
  std::optional<MapDistance::Result> cosine;
  std::optional<FeatureSimilarity::Result> cka;
  std::optional<MapSparsity::Result> sparsity;
  std::optional<RemovedTable> removed;  // with sparsity, where the branch has such directions
  int32_t skip_rows = 0;  // as used: 1 when no document was longer than what was asked for
};

// Measures every head that has a map on documents of token ids, on the model as `adaptation` makes
// it, in one forward pass a document without gradients (method.md §4.3–§4.5). Maps are signed where
// a branch of form uniform_map or a second map makes them so (signed_maps.h); features are the
// heads' outputs before any branch, DiffLlama's after its head norm. Peak memory beside the
// weights: one document's activations, a few MB of map rows, and for CKA L·(H·d)²·8 bytes.
// `between` is called after each pass and may throw to stop. Throws std::runtime_error if there is
// no document.
HeadStructure measure_head_structure(const model::Llama& llama, const model::Adaptation& adaptation,
                                     const std::vector<Document>& documents,
                                     const HeadStructureOptions& options,
                                     const std::function<void()>& between = {});

}  // namespace dex::evaluate
