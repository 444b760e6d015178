#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker/evaluate/supervised_batch.h"
#include "worker/kernels/linear_cross_entropy.h"
#include "worker/model/llama.h"

namespace dex::evaluate {

// Σ w·CE and Σ w of one document.
struct DocumentLoss {
  double loss = 0, weight = 0;
};

struct HeldOut {
  double loss = 0;  // Σ w·CE / Σ w in nats, summed in fp64 over all batches: not a mean of means
  double token_accuracy = 0;            // share of labelled tokens that are the arg-max
  int64_t labels = 0;                   // labelled tokens
  int64_t tokens = 0;                   // tokens read
  std::vector<DocumentLoss> documents;  // in the order of the batches
};

// Cross-entropy of held-out rows, without gradients. `between` is called after each batch (to
// answer a stop request; it may throw); `observer` looks into each forward pass. Throws
// std::runtime_error if the batches hold no label.
HeldOut held_out_loss(const model::Llama& llama, const model::Adaptation& adaptation,
                      std::span<const SupervisedBatch> batches,
                      kernels::LinearCrossEntropy& cross_entropy,
                      const std::function<void()>& between = {},
                      const model::Observer& observer = {});

// The losses of each document alone, as HeldOut has them.
std::vector<DocumentLoss> document_losses(const model::Llama& llama,
                                          const model::Adaptation& adaptation,
                                          std::span<const SupervisedBatch> batches,
                                          kernels::LinearCrossEntropy& cross_entropy,
                                          const std::function<void()>& between = {});

}  // namespace dex::evaluate
