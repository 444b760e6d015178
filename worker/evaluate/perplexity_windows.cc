#include "worker/evaluate/perplexity_windows.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dex::evaluate {

std::vector<Window> perplexity_windows(int32_t tokens, int32_t width, int32_t stride) {
  if (width < 2 || stride < 1 || stride > width - 1) {
    throw std::runtime_error("the stride must be from 1 to the context length − 1 = " +
                             std::to_string(width - 1) + ", got " + std::to_string(stride));
  }
  std::vector<Window> out;
  for (int32_t first = 1; first < tokens;) {
    const int32_t end = std::min(tokens, out.empty() ? width : first + stride);
    out.push_back({std::max(0, end - width), end, first});
    first = end;
  }
  return out;
}

}  // namespace dex::evaluate
