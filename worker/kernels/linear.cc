#include "worker/kernels/linear.h"

#include <bit>
#include <cstring>

namespace dex::kernels {
namespace {

float element(const WeightView& w, int64_t row, int64_t column) {
  const int64_t index = row * w.columns + column;
  if (w.number == Number::kF32) return static_cast<const float*>(w.data)[index];
  if (w.number == Number::kInt8) return w.scales[row] * static_cast<const int8_t*>(w.data)[index];
  return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(w.data)[index]} << 16);
}

}  // namespace

int64_t packed_size(int64_t rows, int64_t columns) {
  return (rows + kTileRows - 1) / kTileRows * kTileRows * columns;
}

void linear_plain(const float* x, int64_t x_stride, int64_t rows, const WeightView& w,
                  int64_t begin, int64_t end, float* y, int64_t y_stride, Store store) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t n = begin; n < end; ++n) {
      double sum = store == Store::kAdd ? y[r * y_stride + n] : 0.0;
      for (int64_t k = 0; k < w.columns; ++k) sum += double{x[r * x_stride + k]} * element(w, n, k);
      y[r * y_stride + n] = static_cast<float>(sum);
    }
  }
}

}  // namespace dex::kernels
