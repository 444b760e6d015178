#pragma once

#include "services/statistics/philox.h"

// Philox as kernels, models and sampling call it: evaluations and what compares them in the
// scheduler draw from the same one.
namespace dex::kernels {

using statistics::philox;
using statistics::random_unit;
using statistics::random_word;

}  // namespace dex::kernels
