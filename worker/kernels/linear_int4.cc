#include "worker/kernels/linear_int4.h"

#include <algorithm>

#include "worker/kernels/bf16.h"

namespace dex::kernels {
namespace {

// One output's group, `count` ≤ 32 weights, into its place n of the block.
void quantize_group(const float* w, int64_t count, int64_t n, Int4Block& block) {
  const auto [least, most] = std::minmax_element(w, w + count);
  block.minimum[n] = to_bf16(*least);
  const float minimum = from_bf16(block.minimum[n]);
  block.scale[n] = to_bf16((*most - minimum) / 15.0F);
  const float scale = from_bf16(block.scale[n]);
  // Too small for a quotient: the group is its minimum, for all that it does.
  const float inverse = scale >= 1e-30F ? 1.0F / scale : 0.0F;
  if (inverse == 0) block.scale[n] = 0;
  for (int64_t k = 0; k < count; ++k) {
    const float steps = std::clamp((w[k] - minimum) * inverse, 0.0F, 15.0F);
    const auto q = static_cast<uint8_t>(steps + 0.5F);
    uint8_t& byte = block.q[k / 8][4 * n + k % 4];
    byte = static_cast<uint8_t>(k % 8 < 4 ? byte | q : byte | q << 4);
  }
}

}  // namespace

void quantize_int4(const float* w, int64_t rows, int64_t columns, Int4Block* blocks) {
  for (int64_t first = 0; first < rows; first += kInt4Outputs) {
    const int64_t outputs = std::min(kInt4Outputs, rows - first);
    for (int64_t k = 0; k < columns; k += kInt4Group, ++blocks) {
      *blocks = {};
      for (int64_t n = 0; n < outputs; ++n) {
        quantize_group(w + (first + n) * columns + k, std::min(kInt4Group, columns - k), n,
                       *blocks);
      }
    }
  }
}

float int4_weight(const WeightView& w, int64_t row, int64_t column) {
  const Int4Block& block = static_cast<const Int4Block*>(
      w.data)[row / kInt4Outputs * int4_groups(w.columns) + column / kInt4Group];
  const int64_t n = row % kInt4Outputs, k = column % kInt4Group;
  const uint8_t byte = block.q[k / 8][4 * n + k % 4];
  const int q = k % 8 < 4 ? byte & 15 : byte >> 4;
  return from_bf16(block.scale[n]) * static_cast<float>(q) + from_bf16(block.minimum[n]);
}

void linear_int4_plain(const Int8Group* x, int64_t rows, const WeightView& w, int64_t begin,
                       int64_t end, float* y, int64_t y_stride, Store store) {
  const int64_t groups = int4_groups(w.columns);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t n = begin; n < end; ++n) {
      double sum = store == Store::kAdd ? y[r * y_stride + n] : 0.0;
      for (int64_t k = 0; k < w.columns; ++k) {
        const Int8Group& group = x[r * groups + k / kInt4Group];
        sum += double{group.scale} * group.q[k % kInt4Group] * int4_weight(w, n, k);
      }
      y[r * y_stride + n] = static_cast<float>(sum);
    }
  }
}

}  // namespace dex::kernels
