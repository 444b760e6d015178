#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace dex::evaluate {

// Cuts items 0 … count − 1, in order, into runs [begin, end) of at most `max_tokens` tokens
// together (one item may be larger) and at most `max_items`. Between two runs a task reports its
// progress and can be stopped; inside one the engine batches.
struct Run {
  size_t begin = 0;
  size_t end = 0;
};
std::vector<Run> in_runs(size_t count, const std::function<int64_t(size_t)>& tokens,
                         int64_t max_tokens, size_t max_items);

}  // namespace dex::evaluate
