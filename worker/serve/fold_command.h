#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <string>

#include "worker/serve/local_commands.h"

namespace dex::serve {

// How far a folded model is from base and branch, in fp32.
struct FoldReport {
  std::string dtype;  // of the weights that were written: float32, bfloat16, float16
  int64_t tokens = 0;
  double largest_logit_difference = 0, mean_logit_difference = 0;
  bool within_bound = false;  // the largest is at most 1e-4, which rounding explains
};

// The model with its adapter inside (method.md §2.4) as a plain Hugging Face folder at `to`, which
// must not exist, in the type of --dtype (default: the base's own). Measures branch against folded
// on 64 tokens in fp32; a fold that is not the branch, above 1e-2, is not written. Throws
// std::runtime_error with one sentence for whatever is wrong.
FoldReport fold_into(const LocalModel& where, const std::filesystem::path& to);

// The same, with the certificate as one line of JSON: a `warning` where it is not within its bound.
void fold(const LocalModel& where, const std::filesystem::path& to, std::ostream& out);

}  // namespace dex::serve
