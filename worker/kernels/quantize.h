#pragma once

#include <cstdint>

namespace dex::kernels {

// A Linear weight in eight bits, symmetric, with a scale an output channel: w[n, k] ≈
// scales[n]·q[n, k] with scales[n] = max_k |w[n, k]| / 127 and q rounded to the nearest, so −127 …
// 127 and never off by more than half a scale. A row of zeros has scale 0. Weights only:
// activations stay fp32 (method.md §8.5, performance.md §1). w, q [rows, columns], scales [rows];
// finite w.
void quantize_rows(const float* w, int64_t rows, int64_t columns, int8_t* q, float* scales);

}  // namespace dex::kernels
