#pragma once

#include "services/statistics/statistics.h"

// Intervals and tests for results. They lie where the scheduler and the agent can use them too:
// what compares two evaluations is computed as what compares two subjects of one.
namespace dex::evaluate {

using statistics::bootstrap;
using statistics::BootstrapOptions;
using statistics::Interval;
using statistics::mcnemar_exact;
using statistics::normal_quantile;
using statistics::wilson;

}  // namespace dex::evaluate
