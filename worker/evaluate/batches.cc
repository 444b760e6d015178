#include "worker/evaluate/batches.h"

namespace dex::evaluate {

std::vector<Run> in_runs(size_t count, const std::function<int64_t(size_t)>& tokens,
                         int64_t max_tokens, size_t max_items) {
  std::vector<Run> out;
  int64_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t more = tokens(i);
    if (out.empty() || sum + more > max_tokens || i - out.back().begin == max_items) {
      out.push_back({i, i});
      sum = 0;
    }
    out.back().end = i + 1;
    sum += more;
  }
  return out;
}

}  // namespace dex::evaluate
