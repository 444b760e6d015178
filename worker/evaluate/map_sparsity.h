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
  at::Tensor entries_, small_, negative_, negative_mass_, mass_;  // [L, H] fp64
};

}  // namespace dex::evaluate
