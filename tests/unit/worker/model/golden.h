#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "worker/kernels/linear_cross_entropy.h"
#include "worker/model/llama.h"
#include "worker/model/safetensors.h"

// What the golden files of tests/data/model have in common: `tokens` of documents cut at `bounds`,
// and a loss over them.
namespace dex::testing {

inline std::vector<std::vector<int64_t>> documents_of(const model::Safetensors& golden) {
  const at::Tensor tokens = golden.tensor("tokens"), bounds = golden.tensor("bounds");
  std::vector<std::vector<int64_t>> documents;
  for (int64_t i = 0; i + 1 < bounds.size(0); ++i) {
    const at::Tensor part =
        tokens.slice(0, bounds[i].item<int64_t>(), bounds[i + 1].item<int64_t>()).contiguous();
    documents.emplace_back(part.const_data_ptr<int64_t>(),
                           part.const_data_ptr<int64_t>() + part.size(0));
  }
  return documents;
}

// Mean cross-entropy of the next token inside each document.
inline at::Tensor next_token_loss(const model::Llama& llama, const model::Batch& batch,
                                  const model::Adaptation& adaptation) {
  const at::Tensor targets = at::full_like(batch.tokens, -100);
  const at::Tensor weights_of_rows = at::zeros({batch.tokens.size(0)});
  const double labels =
      static_cast<double>(batch.tokens.size(0) - static_cast<int64_t>(batch.bounds.size()) + 1);
  for (size_t i = 0; i + 1 < batch.bounds.size(); ++i) {
    for (int64_t row = batch.bounds[i]; row + 1 < batch.bounds[i + 1]; ++row) {
      targets[row] = batch.tokens[row + 1];
      weights_of_rows[row] = 1 / labels;
    }
  }
  return kernels::LinearCrossEntropy().loss(llama.hidden(batch, adaptation),
                                            llama.lm_head(adaptation), targets, weights_of_rows);
}

}  // namespace dex::testing
