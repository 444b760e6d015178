#pragma once

#include <algorithm>
#include <vector>

#include "tests/unit/worker/train/tiny_model.h"
#include "worker/evaluate/held_out_loss.h"

namespace dex::train::testing {

// The loss of an adapted model on the rows that JobTest holds out, computed without the trainer.
inline double loss_on_held_out_rows(const model::Llama& llama,
                                    const model::Adaptation& adaptation) {
  const auto rows = tiny_rows(12, 40, 78);
  std::vector<std::vector<float>> weights;
  std::vector<evaluate::Document> documents;
  for (size_t r = 0; r < rows.size(); ++r) {
    weights.emplace_back(rows[r].size(), 1.0f);
    if (r % 4 == 3) std::fill_n(weights.back().begin(), rows[r].size() / 2, 0.0f);
  }
  for (size_t r = 0; r < rows.size(); ++r) documents.push_back({rows[r], weights[r]});
  kernels::LinearCrossEntropy cross_entropy;
  return evaluate::held_out_loss(llama, adaptation, evaluate::supervise_in_batches(documents, 512),
                                 cross_entropy)
      .loss;
}

}  // namespace dex::train::testing
