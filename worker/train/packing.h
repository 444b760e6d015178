#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dex::train {

// Examples that share one sequence of the model; indices into the data set, in the order they lie
// in the sequence. Each is a segment of its own: attention and labels never cross examples,
// positions restart (performance.md §5).
using Pack = std::vector<uint32_t>;

struct PackingOptions {
  int32_t max_tokens = 512;  // of one pack; no example may be longer
  bool packing = true;       // false: one example a pack
  uint32_t window =
      1024;  // examples looked at together: bounds the search and keeps packs well mixed
};

// The packs of one pass over the data: a permutation of the examples by (seed, pass), then first
// fit by falling length within each window, then the window's packs in random order. A pure
// function of its arguments, so the data order needs no state but a position (jobs.md §7). Every
// example occurs in exactly one pack. Throws std::runtime_error if an example is empty or longer
// than max_tokens.
std::vector<Pack> pack_pass(std::span<const int32_t> lengths, const PackingOptions& options,
                            uint64_t seed, uint64_t pass);
// The same of `drawn`, indices into `lengths`: each of them lands in one pack, so that an example
// that was drawn twice occurs twice.
std::vector<Pack> pack_pass(std::span<const int32_t> lengths, std::span<const uint32_t> drawn,
                            const PackingOptions& options, uint64_t seed, uint64_t pass);

}  // namespace dex::train
