#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/evaluate/attention_rows.h"
#include "worker/evaluate/head_selection.h"

namespace dex::evaluate {

// How much of each head's map is as good as nothing, and how much is negative (method.md §4.5).
// Over the entries that a row sees, of all rows of all documents together; sums in fp64. Not
// thread-safe.
class MapSparsity {
 public:
  MapSparsity(int64_t layers, int64_t heads, double epsilon = 1e-3);

  void add(int64_t layer, const AttentionRows& rows);

  struct Result {
    double epsilon = 0;
    HeadTable sparsity;        // [L][H]: share of entries with |M| < ε
    HeadTable negative_share;  // [L][H]: share of entries < 0; 0 for softmax weights
    HeadTable negative_mass;   // [L][H]: Σ|M⁻| / Σ|M|
  };
  // Throws std::runtime_error if a layer has seen no row.
  Result result() const;

 private:
  double epsilon_;
  at::Tensor entries_;                                  // [L] fp64, a head
  at::Tensor small_, negative_, negative_mass_, mass_;  // [L, H] fp64
};

// What a folding branch takes away from a head's output: eigenvalues of the symmetric part of
// I + s·λ·w_d (method.md §4.5; the token map of `paper` and `head_mean` has no negative entry).
struct RemovedDirections {
  int64_t below_zero = 0;  // directions that are turned round
  int64_t below_half = 0;  // that lose more than half, those turned round among them
};
// `w_d` [d, d], `strength` = s·λ.
RemovedDirections removed_directions(const at::Tensor& w_d, double strength);

}  // namespace dex::evaluate
