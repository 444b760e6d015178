#include "worker/kernels/linear_panels.h"

#include <algorithm>

namespace dex::kernels {
namespace {

template <class W>
void pack(const W* w, int64_t columns, int64_t begin, int64_t end, W* panels) {
  // Some inputs at a time, so that the lines that 32 outputs are written to stay in a cache.
  constexpr int64_t kInputs = 128;
  for (int64_t first = begin; first < end; first += kPanelOutputs) {
    W* panel = panels + first * columns;
    const int64_t outputs = std::min(kPanelOutputs, end - first);
    for (int64_t k0 = 0; k0 < columns; k0 += kInputs) {
      const int64_t k1 = std::min(columns, k0 + kInputs);
      for (int64_t n = 0; n < kPanelOutputs; ++n) {
        const W* in = w + (first + n) * columns;
        for (int64_t k = k0; k < k1; ++k) panel[k * kPanelOutputs + n] = n < outputs ? in[k] : W{};
      }
    }
  }
}

}  // namespace

void pack_panels(const WeightView& w, int64_t begin, int64_t end, void* panels) {
  if (w.number == Number::kF32) {
    pack(static_cast<const float*>(w.data), w.columns, begin, end, static_cast<float*>(panels));
  } else if (w.number == Number::kBf16) {
    pack(static_cast<const uint16_t*>(w.data), w.columns, begin, end,
         static_cast<uint16_t*>(panels));
  } else {
    pack(static_cast<const int8_t*>(w.data), w.columns, begin, end, static_cast<int8_t*>(panels));
  }
}

}  // namespace dex::kernels
