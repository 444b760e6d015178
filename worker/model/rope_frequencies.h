#pragma once

#include <vector>

#include "worker/model/config.h"

namespace dex::model {

// How far each pair (i, i + d/2) of a head turns from one position to the next, in radians: [d/2].
// f_i = θ^(−2i/d), then by the config's scaling:
//   linear  f / factor
//   llama3  with w = original_max_position_embeddings·f/2π, the turns within the trained length:
//           f where w > high_freq_factor, f / factor where w < low_freq_factor, between them the
//           blend (1 − s)·f/factor + s·f, s = (w − low)/(high − low)
// In fp32 step by step as transformers rounds it: at position 8,000 the angle's own rounding is
// larger than that of everything after it.
std::vector<float> rope_frequencies(const Config& config);

}  // namespace dex::model
