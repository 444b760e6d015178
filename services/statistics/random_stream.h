#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace dex::statistics {

// What a random number is for. Part of the stream's number, so that two uses never see the same
// words and an added use changes no other.
enum class Draw : uint64_t {
  kBootstrap = 1,  // which units a resample holds
  kShots,          // which rows are shown as examples
  kQueries,        // which rows are asked
  kOrder,          // in which order the examples stand
  kFiller,         // where a haystack begins
  kNeedles,        // cities, numbers and depths
  kBlind,          // who is "a" and who is "b" in a blind pair
  kSequences,      // on which sequences heads are measured
  kKeptSamples,    // which samples are kept for people to read
  kShippedText,    // the sentences of the filler that comes with evaluate
};

// Philox4x32-10 (philox.h) as a sequence: word i is random_word(seed, use·2⁴⁸ + index, i).
// The same on every machine; std's distributions are not. Cheap to make; not thread-safe.
class RandomStream {
 public:
  RandomStream(uint64_t seed, Draw use, uint64_t index = 0);

  uint32_t next();                 // uniform over all 32-bit words
  uint32_t below(uint32_t bound);  // uniform in [0, bound), without bias; bound ≥ 1
  // The numbers 0 … count − 1 in random order (Fisher-Yates).
  std::vector<uint32_t> permutation(uint32_t count);

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t block_index_ = 0;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
};

}  // namespace dex::statistics
