#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/model/dex_options.h"

namespace dex::model {

// The tensors of one layer's branch, method.md §3.2; undefined where the options have none. All
// fp32 in training.
struct BranchTensors {
  at::Tensor w_d;           // [d, d] shared · [H, d, d] per_head
  at::Tensor w_down, w_up;  // bottleneck: [d, m] [m, d] · scope per_head: [H, d, m] [H, m, d]
  at::Tensor gate;          // [H], head_mean
  at::Tensor lambda_learn;  // [1], where λ is learned
};

// Artefact key ("w_d", "gate" …) and shape of every tensor that the options ask for, in a fixed
// order.
std::vector<std::pair<std::string, std::vector<int64_t>>> branch_shapes(const DexOptions& options,
                                                                        const Config& config);
// The field for a key of branch_shapes().
at::Tensor& branch_field(BranchTensors& branch, const std::string& key);
const at::Tensor& branch_field(const BranchTensors& branch, const std::string& key);

// The start of §3.2: zeros, or U(−1/√d, 1/√d) for w_d `linear` and for w_down; gates 0; λ_learn =
// learn_init. Depends on (seed, layer) only, never on a global generator.
BranchTensors initial_branch(const DexOptions& options, const Config& config, int64_t layer,
                             uint64_t seed);

// The map of projection P, [d, d] or [H, d, d]: w_d itself, or w_down·w_up. Differentiable.
at::Tensor projection_map(const BranchTensors& branch);

// The difference term D of §3.1 in simple ops: o [N, H, d] → [N, H, d], before sign, λ and mask.
// Differentiable.
at::Tensor difference(const BranchTensors& branch, const at::Tensor& o);

// m_h [H] fp32: 1 for the listed heads, else 0.
at::Tensor head_mask(const std::vector<int64_t>& heads, int64_t head_count);

}  // namespace dex::model
