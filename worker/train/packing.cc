#include "worker/train/packing.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "worker/train/philox.h"

namespace dex::train {
namespace {

// First fit: each example, longest first, goes into the first pack of the window that has room for
// it.
std::vector<Pack> first_fit(std::vector<uint32_t> examples, std::span<const int32_t> lengths,
                            int32_t max_tokens) {
  std::stable_sort(examples.begin(), examples.end(),
                   [&](uint32_t a, uint32_t b) { return lengths[a] > lengths[b]; });
  std::vector<Pack> packs;
  std::vector<int32_t> room;
  for (const uint32_t example : examples) {
    const auto slot = std::find_if(room.begin(), room.end(),
                                   [&](int32_t free) { return free >= lengths[example]; });
    const auto index = static_cast<size_t>(slot - room.begin());
    if (slot == room.end()) {
      packs.emplace_back();
      room.push_back(max_tokens);
    }
    packs[index].push_back(example);
    room[index] -= lengths[example];
  }
  return packs;
}

void check_lengths(std::span<const int32_t> lengths, int32_t max_tokens) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 1 || lengths[i] > max_tokens) {
      throw std::runtime_error("[pack_pass] example " + std::to_string(i) + " must have 1 to " +
                               std::to_string(max_tokens) + " tokens, got " +
                               std::to_string(lengths[i]));
    }
  }
}

}  // namespace

std::vector<Pack> pack_pass(std::span<const int32_t> lengths, const PackingOptions& options,
                            uint64_t seed, uint64_t pass) {
  std::vector<uint32_t> every(lengths.size());
  std::iota(every.begin(), every.end(), 0u);
  return pack_pass(lengths, every, options, seed, pass);
}

std::vector<Pack> pack_pass(std::span<const int32_t> lengths, std::span<const uint32_t> drawn,
                            const PackingOptions& options, uint64_t seed, uint64_t pass) {
  check_lengths(lengths, options.max_tokens);
  std::vector<uint32_t> order =
      permutation(static_cast<uint32_t>(drawn.size()), seed, Site::kOrder, pass);
  for (uint32_t& example : order) example = drawn[example];
  std::vector<Pack> all;
  if (!options.packing) {
    for (const uint32_t example : order) all.push_back({example});
    return all;
  }
  uint64_t window_index = 0;
  for (size_t begin = 0; begin < order.size(); begin += options.window, ++window_index) {
    const size_t end = std::min(order.size(), begin + options.window);
    auto packs =
        first_fit({order.begin() + begin, order.begin() + end}, lengths, options.max_tokens);
    // First fit leaves full packs of long examples in front; without a shuffle a window would go
    // from long to short.
    const auto mixed = permutation(static_cast<uint32_t>(packs.size()), seed, Site::kPacks,
                                   (pass << 24) | window_index);
    for (const uint32_t index : mixed) all.push_back(std::move(packs[index]));
  }
  return all;
}

}  // namespace dex::train
