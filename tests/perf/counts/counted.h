#pragma once

#include <functional>
#include <map>
#include <string>

namespace dex::perf {

// Prepares a part's work, warms up what is made once a process, and returns the work that is
// counted: the same instructions in every process of the same build, in one thread.
using Prepare = std::function<std::function<void()>()>;

// The parts by name. `model` is a Hugging Face folder with a tokenizer.json; only `tokenizer` reads
// it.
std::map<std::string, Prepare> counted_parts(const std::string& model);

}  // namespace dex::perf
