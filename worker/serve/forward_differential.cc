// Differential attention of forward.h: V1 of method.md §8 in DiffLlama's layout, as
// model/differential_attention.h computes it for training. The cache is everybody's: a head of keys
// and a head of values a block, each map made once for each half of the wide values.
#include <cmath>

#include "worker/serve/forward.h"

namespace dex::serve {

void Forward::tile_halves(int64_t layer, int64_t first, int64_t count, int64_t kv_head,
                          int thread) {
  const int64_t d = config_.head_dim, pairs = config_.kv_heads / 2, low = kv_head % pairs;
  attend(layer, first, count, kv_head, low, wide_.data(), 2 * d, thread);
  attend(layer, first, count, kv_head, low + pairs, wide_.data() + d, 2 * d, thread);
}

void Forward::subtract(const LayerView& layer, int64_t row) {
  const int64_t pairs = config_.heads / 2, width = 2 * config_.head_dim;
  for (int64_t head = 0; head < pairs; ++head) {
    const float* first = wide_.data() + (row * config_.heads + head) * width;
    const float* second = first + pairs * width;
    float* out = o_.data() + (row * pairs + head) * width;
    double squares = 0;
    for (int64_t i = 0; i < width; ++i) {
      out[i] = first[i] - layer.lambda * second[i];
      squares += static_cast<double>(out[i]) * out[i];
    }
    const double mean = squares / static_cast<double>(width);
    const auto scale =
        static_cast<float>((1 - layer.lambda_init) / std::sqrt(mean + config_.rms_norm_eps));
    for (int64_t i = 0; i < width; ++i) out[i] *= scale;
  }
}

}  // namespace dex::serve
