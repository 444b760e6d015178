#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace dex::evaluate {

// How a run learned, from the figures of its updates (method.md §4.6). Updates that were skipped,
// whose figure is not finite, are left out.

// Gradient range: (p95 − p5)/p50 of the pre-clip global norms of the updates after warm-up; small
// is steady. None: no update is left, or the median is 0.
std::optional<double> gradient_range(std::span<const double> norms, int64_t warmup);

// The last value of the running average e ← 0.98·e + 0.02·loss, e starting at the first loss.
// None: no loss.
std::optional<double> final_average_loss(std::span<const double> losses);

// Steps to a loss: the first update u (from 0) whose running average lies below `target`; compare
// runs with target = final_average_loss of the kvo_only run. None: never.
std::optional<int64_t> steps_to_loss(std::span<const double> losses, double target);

}  // namespace dex::evaluate
