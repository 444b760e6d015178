#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "worker/evaluate/attention_rows.h"
#include "worker/model/adaptation.h"
#include "worker/model/config.h"

namespace dex::evaluate {

// What makes a layer's token maps M other than its softmax weights, with entries below 0
// (method.md §3.1, §8); nothing: M = A.
//   form uniform_map   M = A + c_h·(1/(i+1)) on every j ≤ i, c_h = s·λ·m_h·g_h. The mean of values
//                      knows no window, so neither does the constant
//   two maps           M = A1 − share·A2, of one document
struct SignedMaps {
  at::Tensor uniform = {};  // c [H] fp64
  at::Tensor share = {};    // [T, heads] or [1, 1]: model::Observer's on_second_map
  model::Attention attention = model::Attention::kSoftmax;  // how the two maps' heads lie

  [[nodiscard]] bool any() const { return uniform.defined() || share.defined(); }
};

// c of a layer, as λ acts now; undefined where no branch of form uniform_map acts.
at::Tensor uniform_weights(const model::Adaptation& adaptation, size_t layer);

// for_each_attention_rows with the rows of M of every head that o_proj reads. q and k of one
// document, of both maps where there are two.
void for_each_map_rows(const at::Tensor& q, const at::Tensor& k, int64_t window,
                       const SignedMaps& how,
                       const std::function<void(const AttentionRows&)>& visit,
                       int64_t block_entries = kBlockEntries);

// Signed maps have no entropy (method.md §4.1): that of |M|/Σ|M| of each row, in nats, [T, H]
// fp64; 0 for a row without weight. Whoever shows it says so (head_selection.h,
// entropy_of).
at::Tensor magnitude_entropy(const at::Tensor& q, const at::Tensor& k, int64_t window,
                             const SignedMaps& how, int64_t block_entries = kBlockEntries);

}  // namespace dex::evaluate
