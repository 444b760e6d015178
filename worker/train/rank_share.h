#pragma once

#include <cstddef>
#include <cstdint>

namespace dex::train {

// Which micro-batches of an update a rank computes: those of one rank alone, dealt out in turn, so
// that each is computed once and no rank has more than one above another. A micro-batch keeps its
// number in the update, and with it its rows, weight and dropout. Plain values.
struct RankShare {
  int32_t rank = 0, ranks = 1;
  // `index` of the micro-batch in the update, from 0.
  [[nodiscard]] bool has(size_t index) const {
    return index % static_cast<size_t>(ranks) == static_cast<size_t>(rank);
  }
};

}  // namespace dex::train
