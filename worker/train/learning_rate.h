#pragma once

#include <cstdint>

namespace dex::train {

enum class LrSchedule { kCosine, kLinear, kConstant };

// Updates of the warm-up: max(1, round half up(ratio·N)), 0 for ratio 0 (method.md §2.3).
int64_t warmup_updates(double warmup_ratio, int64_t updates);

// The factor f(u) on the peak rate in update u = 0 … N−1 (method.md §2.3): (u+1)/W while u < W,
// then
//   cosine ½(1 + cos(π(u−W)/(N−W))) · linear 1 − (u−W)/(N−W) · constant 1.
double learning_rate_factor(LrSchedule schedule, int64_t update, int64_t updates, int64_t warmup);

// F = Σ_u f(u): how far one entry can move at rate 1 under Adam (method.md §2.2, the hand-over
// problem).
double learning_rate_reach(LrSchedule schedule, int64_t updates, int64_t warmup);

}  // namespace dex::train
