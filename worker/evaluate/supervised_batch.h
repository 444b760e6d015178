#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "worker/model/llama.h"

namespace dex::evaluate {

// A row of data as a loss sees it: weights[i] ≥ 0 is how much predicting ids[i] counts; the first
// id has nothing before it and never counts. Borrowed.
struct Document {
  std::span<const int32_t> ids;
  std::span<const float> weights;
};

// Documents in one forward pass and what their rows are to predict.
struct SupervisedBatch {
  model::Batch batch;  // N tokens
  at::Tensor targets;  // [N] int64: the next id of the same document; −1 where nothing is predicted
  at::Tensor weights;  // [N] fp32, 0 where the target is −1
  double weight = 0;   // Σ weights
  int64_t labels = 0;  // rows with a target
  int64_t tokens() const { return batch.tokens.size(0); }
};

SupervisedBatch supervise(const std::vector<Document>& documents);

// Documents in order, gathered into batches of at most `max_tokens` (a longer document gets a batch
// of its own).
std::vector<SupervisedBatch> supervise_in_batches(const std::vector<Document>& documents,
                                                  int64_t max_tokens);

}  // namespace dex::evaluate
