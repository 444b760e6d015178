#include "worker/train/philox.h"

#include <numeric>
#include <utility>

#include "worker/kernels/philox.h"

namespace dex::train {

Philox::Philox(uint64_t seed, Site site, uint64_t stream)
    : key_{static_cast<uint32_t>(seed),
           static_cast<uint32_t>(seed >> 32) ^ static_cast<uint32_t>(site)},
      counter_{0, 0, static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)} {}

uint32_t Philox::next() {
  if (used_ == 4) {
    block_ = kernels::philox(counter_, key_);
    if (++counter_[0] == 0) ++counter_[1];
    used_ = 0;
  }
  return block_[used_++];
}

uint32_t Philox::below(uint32_t bound) {
  // Lemire's method: the high half of word·bound is the answer; the few low halves that would
  // favour some answers are drawn again.
  uint64_t product = static_cast<uint64_t>(next()) * bound;
  if (static_cast<uint32_t>(product) < bound) {
    const uint32_t threshold = -bound % bound;
    while (static_cast<uint32_t>(product) < threshold)
      product = static_cast<uint64_t>(next()) * bound;
  }
  return static_cast<uint32_t>(product >> 32);
}

std::vector<uint32_t> permutation(uint32_t count, uint64_t seed, Site site, uint64_t stream) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  Philox random(seed, site, stream);
  for (uint32_t left = count; left > 1; --left)
    std::swap(order[left - 1], order[random.below(left)]);
  return order;
}

}  // namespace dex::train
