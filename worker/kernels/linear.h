#pragma once

#include <cstdint>
#include <vector>

#include "worker/kernels/weight_view.h"

namespace dex::kernels {

// y = x·Wᵀ for weights stored in int8, bf16 or fp32, with fp32 activations and sums. One thread
// each: the caller shares out the outputs [begin, end). Two kernels, because decoding streams
// weights and prefill multiplies:
// - few, up to about 16 rows: each weight is read and widened once for up to 8 rows; memory is the
//   limit.
// - many, from there on: blocks of weights are widened into `scratch` and serve all rows;
//   arithmetic is the limit.
// A row's result depends on the row, the weights and the kernel only, not on how many rows there
// are or how outputs are shared out; so a request's tokens do not depend on its neighbours in a
// batch.

// What becomes of y.
enum class Store { kSet, kAdd };

// y[r, n] = Σ_k x[r, k]·w[n, k] for n in [begin, end): x [rows, columns] with x_stride, y with
// y_stride floats a row.
void linear_few(const float* x, int64_t x_stride, int64_t rows, const WeightView& w, int64_t begin,
                int64_t end, float* y, int64_t y_stride, Store store);

// Rows in a tile of the packed form.
inline constexpr int64_t kTileRows = 32;

// Rearranges x for linear_many: tiles of 32 rows, [columns][32] each; missing rows are 0. `packed`
// has room for packed_size(rows, columns) floats. Tiles [begin, end) only, so that threads can
// share the work.
[[nodiscard]] int64_t packed_size(int64_t rows, int64_t columns);
void pack_rows(const float* x, int64_t x_stride, int64_t rows, int64_t columns, int64_t begin_tile,
               int64_t end_tile, float* packed);

// Floats of scratch that linear_many needs, a thread.
[[nodiscard]] int64_t linear_scratch(int64_t columns);

void linear_many(const float* packed, int64_t rows, const WeightView& w, int64_t begin, int64_t end,
                 float* y, int64_t y_stride, Store store, float* scratch);

// The formula, summed in double: the oracle of both.
void linear_plain(const float* x, int64_t x_stride, int64_t rows, const WeightView& w,
                  int64_t begin, int64_t end, float* y, int64_t y_stride, Store store);

}  // namespace dex::kernels
