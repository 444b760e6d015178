#include "worker/kernels/quantize.h"

#include <algorithm>
#include <cmath>

namespace dex::kernels {

void quantize_rows(const float* w, int64_t rows, int64_t columns, int8_t* q, float* scales) {
  // Adding and taking away 1.5·2²³ rounds to a whole number, ties to even, without a call a weight.
  constexpr float kRound = 12582912.0F;
  for (int64_t n = 0; n < rows; ++n, w += columns, q += columns) {
    float largest = 0;
    for (int64_t k = 0; k < columns; ++k) largest = std::max(largest, std::fabs(w[k]));
    scales[n] = largest / 127.0F;
    // Too small for a quotient: such a row is zeros for all that it does.
    const float inverse = scales[n] >= 1e-30F ? 127.0F / largest : 0.0F;
    if (inverse == 0) scales[n] = 0;
    for (int64_t k = 0; k < columns; ++k)
      q[k] = static_cast<int8_t>((w[k] * inverse + kRound) - kRound);
  }
}

}  // namespace dex::kernels
