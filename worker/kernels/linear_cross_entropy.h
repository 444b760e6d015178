#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dex::kernels {

// Next-token loss without the [N, V] logits. One object a thread: it keeps one buffer of
// `chunk_rows` logits for all calls (35 MB at V = 49,152). 176: the 511 labels of a micro-batch of
// 512 tokens are three equal chunks.
class LinearCrossEntropy {
 public:
  explicit LinearCrossEntropy(int64_t chunk_rows = 176);

  // Σ_i weights[i]·CE(hidden[i]·headᵀ, targets[i]), 0-dim. Rows with weight 0 cost nothing; a sum
  // over no row is 0.
  //   hidden [N, D] · head [V, D] · targets [N] int64 · weights [N] (1/labels of the whole
  //   update, e.g.)
  // Differentiable in hidden and head; their gradients are computed here (where they need one, the
  // head's takes [V, D] more), backward only scales them.
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                  const at::Tensor& weights);

  // CE of each row, [N], without gradient; rows whose target is negative give 0. `best` [N] int64,
  // if not null, gets the arg-max of each row (−1 for skipped rows).
  at::Tensor row_losses(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                        at::Tensor* best = nullptr);

 private:
  at::Tensor chunk(int64_t rows, const at::Tensor& head);  // a view of the buffer, [rows, V]

  int64_t chunk_rows_;
  at::Tensor buffer_;
};

// The same in simple ops, differentiable in hidden and head.
at::Tensor linear_cross_entropy_plain(const at::Tensor& hidden, const at::Tensor& head,
                                      const at::Tensor& targets, const at::Tensor& weights);

}  // namespace dex::kernels
