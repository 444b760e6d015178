#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/evaluate/supervised_batch.h"
#include "worker/model/llama.h"

namespace dex::evaluate {

// How far an adapted model is from its base on a probe set. KL(base ‖ adapted) at a position is
// Σ_v p_base(v)·(ln p_base(v) − ln p_adapted(v)), over the whole vocabulary: the nats that the
// adapted model needs beyond the base to say what the base would say, so what it gives up of the
// base counts and what it learns beside it does not.
struct BaseDivergence {
  double kl = 0;                    // nats a token: mean over all positions with a target
  double base_loss = 0, loss = 0;   // mean cross-entropy of the same positions
  int64_t tokens = 0;               // these positions
  std::vector<double> document_kl;  // Σ over a document's positions
  std::vector<int64_t> document_tokens;
};

// The base's side of it, computed once. Kept are its hidden states after the last norm, [tokens, D]
// in the model's type (4,096 tokens of SmolLM2-135M: 9.4 MB), not its distributions ([tokens, V],
// 85 times as much) nor the top of them, which would not be exact: a product with the base's head
// gives them back to the bit, chunk by chunk, and costs less than running the base again. An
// adaptation that changes nothing gives exactly 0.
class BaseProbe {
 public:
  // Runs `base`, an adaptation that leaves `llama` as the base is, over the batches, which hold at
  // least one target, each row of weight 1 (throws std::runtime_error otherwise). `llama` outlives
  // this object. `between` as in held_out_loss.
  BaseProbe(const model::Llama& llama, const model::Adaptation& base,
            std::vector<SupervisedBatch> batches, const std::function<void()>& between = {});

  BaseDivergence measure(const model::Adaptation& adaptation,
                         const std::function<void()>& between = {}) const;

 private:
  struct Part {
    SupervisedBatch batch;
    at::Tensor rows;     // [n] int64: rows with a target
    at::Tensor targets;  // [n] int64
    at::Tensor hidden;   // [n, D]: the base's
  };

  const model::Llama& llama_;
  at::Tensor base_head_;
  std::vector<Part> parts_;
};

}  // namespace dex::evaluate
