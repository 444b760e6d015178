#include "services/statistics/random_stream.h"

#include <numeric>
#include <utility>

#include "services/statistics/philox.h"

namespace dex::statistics {

RandomStream::RandomStream(uint64_t seed, Draw use, uint64_t index)
    : seed_(seed), stream_((static_cast<uint64_t>(use) << 48) + index) {}

uint32_t RandomStream::next() {
  if (used_ == 4) {
    const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
    block_ = philox({low(block_index_), low(block_index_ >> 32), low(stream_), low(stream_ >> 32)},
                    {low(seed_), low(seed_ >> 32)});
    ++block_index_;
    used_ = 0;
  }
  return block_[used_++];
}

uint32_t RandomStream::below(uint32_t bound) {
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

std::vector<uint32_t> RandomStream::permutation(uint32_t count) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  for (uint32_t left = count; left > 1; --left) std::swap(order[left - 1], order[below(left)]);
  return order;
}

}  // namespace dex::statistics
