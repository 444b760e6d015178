#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker/kernels/linear_cross_entropy.h"
#include "worker/model/llama.h"
#include "worker/train/adamw.h"
#include "worker/train/examples.h"
#include "worker/train/flat_parameters.h"
#include "worker/train/out_of_memory.h"
#include "worker/train/packing.h"
#include "worker/train/process_group.h"

namespace dex::train {

// One optimizer update in two halves: gradients of the whole update, then the step. Owns nothing
// but the buffer of the loss; everything else outlives it. One thread.
class Updater {
 public:
  struct Options {
    int32_t micro_batch_size = 1;  // packs in one forward and backward pass
    double max_grad_norm = 1.0;
    uint64_t seed = 0;                            // of LoRA's dropout
    const model::FrozenPrefix* prefix = nullptr;  // of the lowest layers; null: none is frozen
    ProcessGroup* group = nullptr;                // of several ranks; null: all is computed here
  };
  struct Gradients {
    double loss =
        0;  // Σ w·CE / Σ w over the whole update, nats a supervised token (method.md §2.3)
    double norm = 0;     // of the gradient, global, before clipping
    int64_t tokens = 0;  // read
    int64_t labels = 0;  // supervised
  };

  Updater(const model::Llama& llama, const model::Adaptation& adaptation,
          FlatParameters& parameters, AdamW& optimizer, const Options& options);

  // Gradients of the mean loss over all labels of `packs`, those of update number `update`: each
  // micro-batch is divided by the labels of the whole update, so how it is cut changes nothing but
  // rounding (and what dropout leaves out). `between` is called after each micro-batch, may throw.
  // In a group all ranks call it with the same packs, each computes its share (rank_share.h), and
  // all return the same: gradients, loss and counts of the whole update.
  Gradients accumulate(int64_t update, std::span<const Pack> packs,
                       const std::vector<Example>& examples,
                       const std::function<void()>& between = {});
  // Clips and applies what was accumulated.
  void apply(const Gradients& gradients, const AdamW::Rates& rates);

  kernels::LinearCrossEntropy& cross_entropy() { return cross_entropy_; }

  // What the latest call was at when it ended or threw, and the longest row of its micro-batch; 0:
  // it was at none.
  MemoryPlace place() const { return place_; }
  int64_t longest_row() const { return longest_row_; }

 private:
  void reduce(Gradients& out);  // over the ranks

  const model::Llama& llama_;
  const model::Adaptation& adaptation_;
  FlatParameters& parameters_;
  AdamW& optimizer_;
  Options options_;
  kernels::LinearCrossEntropy cross_entropy_;
  MemoryPlace place_ = MemoryPlace::kForward;
  int64_t longest_row_ = 0;  // tokens
};

}  // namespace dex::train
