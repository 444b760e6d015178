#pragma once

#include <cstdint>
#include <vector>

namespace dex::text {

// What happens to a row that is longer than max_seq_length.
enum class Truncation {
  kAuto,   // kChunk for text rows, else kRight
  kRight,  // the end is cut off
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
// weight 0, so that every id but the row's first is predicted exactly once. `keep_first`: kLeft
// keeps ids[0].
std::vector<WeightedIds> cut(WeightedIds row, int32_t limit, Truncation how, bool keep_first);

}  // namespace dex::text
