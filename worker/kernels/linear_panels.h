#pragma once

#include <cstdint>

#include "worker/kernels/linear.h"
#include "worker/kernels/weight_view.h"

namespace dex::kernels {

// y = x·Wᵀ for weights in panels: 32 outputs side by side, input by input, [⌈rows/32⌉][columns][32]
// in int8, bf16 or fp32; outputs beyond the last are 0. Lanes are outputs and inputs are broadcast,
// so that
// - one stream of memory serves 32 outputs, a cache line an input in bf16,
// - no sum runs across lanes, and what has been widened serves 8 rows: from four rows on, where
//   arithmetic is the limit, twice as fast as linear_few's rows of weights,
// - every sum runs over the inputs in their order, whatever the number of rows: decoding and
//   prefill make the same bits, as do requests alone and in a batch of any size.
// But the panels have to be made: a mapped file has rows.
inline constexpr int64_t kPanelOutputs = 32;

// Numbers that the panels of a weight take.
[[nodiscard]] inline int64_t panel_elements(int64_t rows, int64_t columns) {
  return (rows + kPanelOutputs - 1) / kPanelOutputs * kPanelOutputs * columns;
}

// Outputs [begin, end) of w, which lies in rows, into its panels; `begin` is a multiple of 32, and
// what is written starts at its panel's place in `panels`. Not of kInt4.
void pack_panels(const WeightView& w, int64_t begin, int64_t end, void* panels);

// Floats of scratch that linear_panels needs, a thread.
[[nodiscard]] inline int64_t panel_scratch(int64_t columns) {
  return kPanelOutputs * columns;
}

// x [rows, columns] with x_stride, outputs [begin, end) of y as linear_few has it; w.panels holds.
// One thread. From 16 rows on a panel is widened once, into `scratch`.
void linear_panels(const float* x, int64_t x_stride, int64_t rows, const WeightView& w,
                   int64_t begin, int64_t end, float* y, int64_t y_stride, Store store,
                   float* scratch);

}  // namespace dex::kernels
