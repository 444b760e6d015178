#pragma once

#include <array>
#include <cstdint>

namespace dex::statistics {

// Philox4x32-10 (Salmon et al., SC'11): four random words as a pure function of counter and key. No
// state, so any element of any stream can be had alone and a resumed job sees the same numbers.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Element `index` of stream (seed, stream), uniform over all 32-bit words.
uint32_t random_word(uint64_t seed, uint64_t stream, uint64_t index);

// The same as a double in [0, 1), on a grid of 2⁻³².
double random_unit(uint64_t seed, uint64_t stream, uint64_t index);

}  // namespace dex::statistics
