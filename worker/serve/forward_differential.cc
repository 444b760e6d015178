// Differential attention of forward.h: what model/differential_attention.h computes for training,
// by DiffLlama's layout or as a second map (method.md §8). The cache is everybody's: a head of keys
// and a head of values in a block.
#include <cmath>

#include "worker/serve/forward.h"

namespace dex::serve {

using model::Attention;

int64_t Forward::query_head(int64_t kv_head, int64_t i) const {
  const int64_t group = config_.heads_per_kv();
  if (config_.attention != Attention::kSecondMapV1) return kv_head * group + i;
  return 2 * (kv_head / 2 * group + i) + kv_head % 2;  // pairs of keys read pairs of queries
}

int64_t Forward::key_head(int64_t head) const {
  const int64_t group = config_.heads_per_kv();
  if (config_.attention != Attention::kSecondMapV1) return head / group;
  return 2 * (head / 2 / group) + head % 2;
}

void Forward::tile_maps(int64_t layer, int64_t first, int64_t count, int64_t kv_head, int thread) {
  const int64_t d = config_.head_dim;
  if (config_.attention != Attention::kDiffLlama)
    return attend(layer, first, count, kv_head, kv_head, maps_.data(), d, thread);
  // Each map once for each half of the wide values.
  const int64_t pairs = config_.kv_heads / 2, low = kv_head % pairs;
  attend(layer, first, count, kv_head, low, maps_.data(), 2 * d, thread);
  attend(layer, first, count, kv_head, low + pairs, maps_.data() + d, 2 * d, thread);
}

void Forward::subtract(const LayerView& layer, int64_t row) {
  if (config_.attention == Attention::kDiffLlama) return subtract_wide(layer, row);
  const int64_t d = config_.head_dim;
  for (int64_t head = 0; head < config_.heads; ++head) {
    const int64_t place = row * config_.heads + head;
    const float* first = maps_.data() + 2 * place * d;
    const float share =
        lambda_.empty() ? layer.lambda : 1 / (1 + std::exp(-lambda_[static_cast<size_t>(place)]));
    float* out = o_.data() + place * d;
    for (int64_t i = 0; i < d; ++i) out[i] = first[i] - share * first[d + i];
  }
}

void Forward::subtract_wide(const LayerView& layer, int64_t row) {
  const int64_t pairs = config_.heads / 2, width = 2 * config_.head_dim;
  for (int64_t head = 0; head < pairs; ++head) {
    const float* first = maps_.data() + (row * config_.heads + head) * width;
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
