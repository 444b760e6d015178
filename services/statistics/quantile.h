#pragma once

#include <vector>

namespace dex::statistics {

// The q-quantile, 0 ≤ q ≤ 1, with linear interpolation between the order statistics around
// q·(n − 1), numpy's default. `values` need not be sorted; at least one.
double quantile_of(std::vector<double> values, double q);

}  // namespace dex::statistics
