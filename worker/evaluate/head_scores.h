#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/evaluate/head_selection.h"
#include "worker/evaluate/supervised_batch.h"
#include "worker/kernels/linear_cross_entropy.h"
#include "worker/model/llama.h"

namespace dex::evaluate {

// The first row of each map that counts, i_min of method.md §4.1: `skip_rows`, or 1 when no
// document has such a row. Row 0 has one entry and says nothing: it never counts.
int32_t first_counted_row(const std::vector<Document>& documents, int32_t skip_rows);

struct HeadScoreOptions {
  int32_t skip_rows = 32;  // i_min: the first rows of each attention map are not counted
  bool entropy = true;
  bool importance = true;
  // Entropy of an adapter of form uniform_map: of its signed maps, by |M| renormalised, and said
  // so. Else that of the softmax weights, by which heads are selected whatever their branch. Models
  // that subtract maps have no others than signed ones.
  bool signed_entropy = false;
  // Computes in fp64 whatever the weights are in. An importance is the absolute value of a sum
  // whose terms nearly cancel, and what fp32 loses of it is lost in the activations: summing in
  // fp64 what a pass in fp32 gives changes nothing (SmolLM2-135M: 84 of 270 heads beyond 1e-4 of
  // their own value, up to 2e-3, either way). Twice the time, and memory for the head and one layer
  // more. Choosing heads needs ranks, not digits, and goes without.
  bool exact = false;
  int64_t batch_tokens = 512;  // of documents in one pass; changes memory and speed, not the result
};

// Measures every query head on calibration documents, on the model as `adaptation` makes it
// (method.md §4):
//   entropy §4.1: mean over rows i ≥ i_min of a document, then over the documents that have such
//   rows. If none has,
//     i_min = 1, entropy_nats gets the normalized values too, and short_sequences says so.
//   importance §4.2: mean over documents of |∂L/∂ξ_h|, L the document's own mean cross-entropy, ξ
//     the gate on the head's output as o_proj reads it; the absolute value is taken per document.
// A head is what has one map and one output: of models that subtract maps, a pair
// (Config::output_heads).
// Sums in fp64; passes in the type of the weights, or in fp64 (`exact`). Weights stay untouched.
// `between` is called after each forward pass and may throw to stop. Throws std::runtime_error if
// there is no document, or none with a label where importance is asked for.
HeadScores measure_heads(const model::Llama& llama, const model::Adaptation& adaptation,
                         const std::vector<Document>& documents, const HeadScoreOptions& options,
                         kernels::LinearCrossEntropy& cross_entropy,
                         const std::function<void()>& between = {});

}  // namespace dex::evaluate
