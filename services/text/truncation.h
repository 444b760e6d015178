#pragma once

#include <cstdint>
#include <vector>

namespace dex::text {

// What happens to a row that is longer than max_seq_length.
enum class Truncation {
  kAuto,   // kChunk for text rows, else kRight
  kRight,  // the end is cut off, and of the beginning what it takes for targets to survive
  kLeft,   // the beginning is cut off; a BOS that the tokenizer adds stays
  kChunk,  // it becomes several rows
  kError,  // it is dropped
};

// Token ids with the weight of each as a target: weights[i] says how much predicting ids[i] counts.
struct WeightedIds {
  std::vector<int32_t> ids;
  std::vector<float> weights;  // same size
};

// Pieces of at most `limit` ids, limit ≥ 2; never kAuto or kError. Chunks overlap by one id of
// weight 0, so that every id but the row's first is predicted exactly once. kRight moves its window
// to the right until the last target is in it, as far as limit/2 ids are left before the first one:
// a row with a target stays one (method.md §12; the half is ours). `keep_first`: a piece that does
// not begin with the row begins with ids[0] all the same.
std::vector<WeightedIds> cut(WeightedIds row, int32_t limit, Truncation how, bool keep_first);

}  // namespace dex::text
