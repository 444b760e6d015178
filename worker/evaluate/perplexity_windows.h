#pragma once

#include <cstdint>
#include <vector>

namespace dex::evaluate {

// Tokens [begin, end) as one forward pass reads them; those from `first` on are scored.
struct Window {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t first = 0;
};

// The forward passes that score every token but the first of `tokens` exactly once (method.md
// §9.1): the first window scores targets 1 … width − 1, each next one the following `stride`
// targets (fewer at the end) with the `width` tokens that end at the last of them. So every target
// beyond the first window has at least width − stride tokens before it. 1 ≤ stride ≤ width − 1;
// throws std::runtime_error otherwise.
std::vector<Window> perplexity_windows(int32_t tokens, int32_t width, int32_t stride);

}  // namespace dex::evaluate
