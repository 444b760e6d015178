#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/evaluate/attention_rows.h"
#include "worker/evaluate/head_selection.h"

namespace dex::evaluate {

// How unlike the attention maps of a layer's heads are, method.md §4.3: 1 − ⟨A_h, A_g⟩_F /
// (‖A_h‖·‖A_g‖) of each document's map, then the mean over documents. 0: the same map; at most 1,
// for signed maps 2.
// Streamed: only the H×H products are kept, in fp64. One document's map of one layer is open at a
// time. Not thread-safe.
class MapDistance {
 public:
  MapDistance(int64_t layers, int64_t heads);

  void add(const AttentionRows& rows);  // to the open map; pass only rows that count (≥ i_min)
  void close(int64_t layer);            // the open map is whole and was this layer's

  struct Result {
    std::vector<HeadTable> pairs;  // [L][H][H], 0 on the diagonal
    std::vector<double> mean;      // [L], over the pairs h < g; 0 for a single head
    int64_t documents = 0;
  };
  // Throws std::runtime_error if no document has been closed.
  Result result() const;

 private:
  at::Tensor open_;                 // [H, H] fp64, ⟨A_h, A_g⟩ so far
  at::Tensor sum_;                  // [L, H, H] fp64, distances
  std::vector<int64_t> documents_;  // [L]
};

}  // namespace dex::evaluate
