#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace dex::train {

// What a random number is for. Part of the counter, so that two uses never see the same numbers;
// values are never given to another use (3 was one once), so that old jobs resume as they began.
enum class Site : uint32_t { kOrder = 1, kPacks = 2, kCalibration = 4, kGroups = 5 };

// A stream of Philox4x32-10 numbers (kernels/philox.h) that is a function of (seed, site, stream)
// alone: no state outlives it, so a resumed job draws what the first attempt drew (jobs.md §7).
// Cheap to make; not thread-safe.
class Philox {
 public:
  Philox(uint64_t seed, Site site, uint64_t stream = 0);

  uint32_t next();                 // uniform over all 32-bit words
  uint32_t below(uint32_t bound);  // uniform in [0, bound), without bias; bound ≥ 1

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

// The numbers 0 … count−1 in random order (Fisher-Yates), a function of its arguments.
std::vector<uint32_t> permutation(uint32_t count, uint64_t seed, Site site, uint64_t stream);

}  // namespace dex::train
