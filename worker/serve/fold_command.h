#pragma once

#include <filesystem>
#include <iosfwd>

#include "worker/serve/local_commands.h"

namespace dex::serve {

// The model with its adapter inside (method.md §2.4) as a plain Hugging Face folder at `to`, which
// must not exist, in the type of --dtype (default: the base's own). Measures branch against folded
// on 64 tokens in fp32 and writes the certificate as one line of JSON, with `within_bound` false
// and a `warning` where the difference is above 1e-4; a fold that is not the branch, above 1e-2, is
// not written. Throws std::runtime_error with one sentence for whatever is wrong.
void fold(const LocalModel& where, const std::filesystem::path& to, std::ostream& out);

}  // namespace dex::serve
