#pragma once

#include <cstdint>

namespace dex::serve {

// The largest magnitudes that a forward pass has met (method.md §8.5): what decides how many bits
// activations would need. Weights in eight bits leave activations in fp32, so these say how far
// that is from rounding activations too.
struct ActivationExtremes {
  double hidden = 0;  // |x|, the residual stream behind every layer
  // |q·k|/√d before the softmax, over the tokens that a row sees; of both maps where one is
  // subtracted from the other.
  double attention_logit = 0;
  int64_t tokens = 0;  // rows that were computed
};

}  // namespace dex::serve
