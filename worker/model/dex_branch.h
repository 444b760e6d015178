#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/model/dex_options.h"

namespace dex::model {

// The tensors of one layer's branch, method.md §3.2; undefined where the options have none
// (branch_shapes). All fp32 in training.
struct BranchTensors {
  at::Tensor w_d;  // [d, d] shared · [H, d, d] per_head · [H·d, H·d] dense
  at::Tensor w_down,
      w_up;         // bottleneck: [w, m] [m, w], w = d or H·d · per_head: [H, d, m] [H, m, d]
  at::Tensor gate;  // [H], head_mean, prefix_mean, uniform_map
  at::Tensor lambda_learn;  // [1], where λ is learned
};

// The field for a key of branch_shapes().
at::Tensor& branch_field(BranchTensors& branch, const std::string& key);
const at::Tensor& branch_field(const BranchTensors& branch, const std::string& key);

// The start of §3.2: zeros, or U(−1/√w, 1/√w) for w_d `linear` and for w_down; gates 0; λ_learn =
// learn_init. The `literal` start of §3.5: w_d linear, w_up U(−1/√m, 1/√m), gates 1. Depends on
// (seed, layer) only, never on a global generator.
BranchTensors initial_branch(const DexOptions& options, const Config& config, int64_t layer,
                             uint64_t seed);

// The map of a linear projection P, in a shape of w_d: w_d itself, or w_down·w_up. Differentiable.
at::Tensor projection_map(const BranchTensors& branch);

// What a branch reads besides its own tensors, for N rows of packed documents.
struct BranchInput {
  at::Tensor o;                        // [N, H, d], the attention output
  at::Tensor v;                        // [N, K, d], the values; read by uniform_map only
  const std::vector<int64_t>& bounds;  // of the documents, as in Batch; means restart at each
};

// The difference term D of §3.1 in simple ops: [N, H, d], before sign, λ and mask. Differentiable.
at::Tensor difference(const DexOptions& options, const BranchTensors& branch,
                      const BranchInput& in);

// concat_h(O_h + s·λ·m_h·D_h)·W_Oᵀ, [N, D]: w_o [D, H·d], lambda [1], mask [H]. Takes the fused
// path of the form (method.md §3.1, performance.md §4):
//   paper, head_mean         dex_out: folded from kFoldRows rows up where W_O is trained
//   prefix_mean, uniform_map dex_out_mean: the branch, its means made again in the backward pass
//   activated bottleneck     simple ops: two products and the activation keep their inputs anyway
at::Tensor branched_output(const DexOptions& options, const BranchTensors& branch,
                           const BranchInput& in, const at::Tensor& w_o, const at::Tensor& lambda,
                           const at::Tensor& mask);

// m_h [H] fp32: 1 for the listed heads, else `floor` (soft_floor).
at::Tensor head_mask(const std::vector<int64_t>& heads, int64_t head_count, double floor = 0);

}  // namespace dex::model
