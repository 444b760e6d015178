#pragma once

#include <functional>
#include <span>
#include <vector>

#include "worker/evaluate/branch_effect_report.h"
#include "worker/evaluate/supervised_batch.h"
#include "worker/kernels/linear_cross_entropy.h"
#include "worker/model/llama.h"

namespace dex::evaluate {

// Adds up what the branch does in the forward passes that it watches: everything of BranchEffect
// but ce_delta. The adaptation outlives it and keeps its masks meanwhile. One thread.
class BranchMeter {
 public:
  explicit BranchMeter(const model::Adaptation& adaptation);
  // To be passed to each forward pass; refers to this object.
  model::Observer observer();
  BranchEffect result() const;

 private:
  struct Layer {
    at::Tensor heads;  // indices of the heads with a mask above the floor; undefined: none
    double o = 0, difference = 0, product = 0;  // ‖O‖², ‖λD‖², ⟨O, λD⟩ over these heads
  };
  void add(int64_t layer, const at::Tensor& o, const at::Tensor& scaled_difference);

  const model::Adaptation& adaptation_;
  std::vector<Layer> layers_;
};

// Runs the batches once with the branch and once with λ = 0, without gradients; `between` as in
// held_out_loss. NOT_APPLICABLE if no layer has a branch on a selected head.
BranchEffect measure_branch_effect(const model::Llama& llama, const model::Adaptation& adaptation,
                                   std::span<const SupervisedBatch> batches,
                                   kernels::LinearCrossEntropy& cross_entropy,
                                   const std::function<void()>& between = {});

}  // namespace dex::evaluate
