#pragma once

#include <cstdint>
#include <vector>

#include "worker/train/gates.h"

namespace dex::train {

// What one row adds to a mean over rows: Σ of the figure and of its weights.
struct RowSum {
  double sum = 0, weight = 0;
};

// Σ sum / Σ weight over rows with a weight, and its 95 % percentile bootstrap over these rows
// (worker/evaluate/statistics.h), which needs two. A difference to the base is paired: each row's
// `sum` holds the difference. Seeded: the same for the same rows and seed.
GateFigure mean_over_rows(std::vector<RowSum> rows, uint64_t seed);

}  // namespace dex::train
