#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace dex::evaluate {

// Causal attention of one document a block of rows at a time, so that the T×T maps of all heads
// never exist at once (method.md §4). In all of this file:
//   q [T, H, d] · k [T, K, d] after RoPE, fp32 or fp64, H % K = 0, query head h reads key head
//     h / (H/K)
//   window: row i sees the rows i − window + 1 … i; 0: all up to i
//   block_entries: most entries of a block over all heads, one row at least; changes no result. By
//     default a block fits in a core's cache with what is made of it
// Without gradients, in the calling thread with LibTorch's pool.
inline constexpr int64_t kBlockEntries = int64_t{1} << 18;

// Some rows of one layer's attention maps in one document, every head's.
struct AttentionRows {
  int64_t first = 0;   // the document's row that is maps[:, 0]
  at::Tensor maps;     // [H, b, first + b]: A_h[i, j] of row i = first + …; 0 where i sees no j
  int64_t window = 0;  // as above
  // [H] bool: heads whose rows have an entry for each j ≤ i whatever the window (signed_maps.h);
  // undefined: none.
  at::Tensor beyond_window = {};
};

// softmax(q·kᵀ/√d): `visit` gets rows 0 … T−1 in order.
void for_each_attention_rows(const at::Tensor& q, const at::Tensor& k, int64_t window,
                             const std::function<void(const AttentionRows&)>& visit,
                             int64_t block_entries = kBlockEntries);

// The last rows of a block: those at or above row `first` of the document; may be none.
AttentionRows rows_from(const AttentionRows& rows, int64_t first);

// Entropy of each row in nats, [T, H] fp64 (method.md §4.1): with logits z, m = max z and
// e = exp(z − m),  H = ln Σe − Σ e·(z − m)/Σe,  sums in fp64. The same number as
// LSE − q·(A·K)/√d, but nothing cancels: a head that looks at one token has 5e-5 nats, and the
// difference of two logits knows 5e-6 of it.
at::Tensor row_entropy(const at::Tensor& q, const at::Tensor& k, int64_t window,
                       int64_t block_entries = kBlockEntries);

}  // namespace dex::evaluate
