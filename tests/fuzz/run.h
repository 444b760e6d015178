#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "tests/fuzz/target.h"

namespace dex::fuzz {

using OneInput = int (*)(const uint8_t* data, size_t size);

struct RunOptions {
  uint64_t seed = 1;
  uint64_t count = 20'000;  // inputs, the seeds among them
  // The run ends after so many seconds, but not before it has had every seed.
  double seconds = 2.5;
  // What one input may take: processor time (waiting counts little), and bytes of memory over what
  // the process had when it began. Not held with a sanitizer, which takes several times both.
  int input_seconds = 20;
  int64_t room_bytes = int64_t{512} << 20;
};

struct Outcome {
  uint64_t inputs = 0;  // that ended well
  uint64_t taken = 0;   // of these
  // Empty: every input ended well. Else how the process ended at input `index`.
  std::string failure;
  uint64_t index = 0;
};

// Gives the target inputs 0, 1, … (mutations.h) in a process of their own, which a fault ends. Call
// from a process with one thread. Blocks until that process has ended.
Outcome run(OneInput target, const Corpus& corpus, const RunOptions& options);

// One given input in a process of its own: how that ended, empty when it ended well.
std::string run_one(OneInput target, const std::string& input, const RunOptions& options);

}  // namespace dex::fuzz
