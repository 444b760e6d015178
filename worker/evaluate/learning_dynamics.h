#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace dex::evaluate {

// Gradient range of a run (method.md §4.6): (p95 − p5)/p50 of the norms, before clipping, of its
// updates after the first `warmup`; small is steady. Updates that were skipped, whose norm is not
// finite, are left out. None: no update is left, or the median is 0. The page's other figure that
// needs no tensor, steps to a loss, compares runs and is the client's
// (client/cli/study_learning.h).
std::optional<double> gradient_range(std::span<const double> norms, int64_t warmup);

}  // namespace dex::evaluate
