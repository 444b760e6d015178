#pragma once

#include <ATen/core/Tensor.h>

#include "worker/evaluate/head_selection.h"

namespace dex::evaluate {

// A fp64 tensor [A, B] as plain numbers.
HeadTable table_of(const at::Tensor& values);

// The mean of a symmetric table [H][H] over its pairs h < g; 0 for a single head.
double pair_mean(const HeadTable& table);

}  // namespace dex::evaluate
