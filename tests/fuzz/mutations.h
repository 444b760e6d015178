#pragma once

#include <cstdint>
#include <string>

#include "tests/fuzz/target.h"

namespace dex::fuzz {

inline constexpr size_t kLongestInput = 64 << 10;  // of what mutations make; seeds may be longer

// Input `index` of a run: the seeds as they are, then seeds with one to six changes each, such as
// flipped bits, cut, doubled and exchanged pieces, pieces of another seed, numbers and length
// fields at their limits, words of the format and nesting. A pure function: the same bytes on any
// machine.
std::string input_of(const Corpus& corpus, uint64_t seed, uint64_t index);

}  // namespace dex::fuzz
