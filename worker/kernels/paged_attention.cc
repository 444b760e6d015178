#include "worker/kernels/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "worker/kernels/bf16.h"

namespace dex::kernels {
namespace {

template <class Store>
void write(const KvLayout& layout, int64_t kv_head, int64_t slot, Store&& store, const float* key,
           const float* value) {
  const int64_t keys = kv_head * layout.head_elements();
  const int64_t values = keys + kBlockTokens * layout.head_dim + slot * layout.padded_dim();
  for (int64_t i = 0; i < layout.head_dim; ++i) store(keys + i * kBlockTokens + slot, key[i]);
  for (int64_t i = 0; i < layout.head_dim; ++i) store(values + i, value[i]);
}

double read(const KvLayout& layout, const void* block, int64_t index) {
  if (layout.number == Number::kF32) return static_cast<const float*>(block)[index];
  return from_bf16(static_cast<const uint16_t*>(block)[index]);
}

// Of one query over tokens 0 … visible − 1; −Inf where it sees nothing.
std::vector<double> scores_of(const AttentionTile& tile, size_t query) {
  const KvLayout& layout = *tile.layout;
  const int64_t keys = tile.keys_at(), visible = tile.visible[query];
  const int64_t hidden = tile.hidden.empty() ? 0 : tile.hidden[query];
  std::vector<double> p(static_cast<size_t>(visible), -std::numeric_limits<double>::infinity());
  for (int64_t t = hidden; t < visible; ++t) {
    double dot = 0;
    for (int64_t i = 0; i < layout.head_dim; ++i) {
      dot += tile.queries[query][i] *
             read(layout, tile.block(t), keys + i * kBlockTokens + t % kBlockTokens);
    }
    p[t] = dot * tile.scale;
  }
  return p;
}

void raise_largest(const AttentionTile& tile, size_t query) {
  for (const double score : scores_of(tile, query)) {
    if (std::isfinite(score))
      *tile.largest = std::max(*tile.largest, static_cast<float>(std::abs(score)));
  }
}

}  // namespace

void write_kv(const KvLayout& layout, void* block, int64_t kv_head, int64_t slot, const float* key,
              const float* value) {
  if (layout.number == Number::kBf16) {
    auto* out = static_cast<uint16_t*>(block);
    write(
        layout, kv_head, slot, [out](int64_t i, float v) { out[i] = to_bf16(v); }, key, value);
  } else {
    auto* out = static_cast<float*>(block);
    write(
        layout, kv_head, slot, [out](int64_t i, float v) { out[i] = v; }, key, value);
  }
}

AttentionScratch::AttentionScratch(const KvLayout& layout)
    : memory_(static_cast<size_t>(kMostQueries * (64 + layout.padded_dim()))) {}

std::vector<double> attention_weights(const AttentionTile& tile, size_t query) {
  std::vector<double> p = scores_of(tile, query);
  const double most = *std::max_element(p.begin(), p.end());
  double total = 0;
  for (double& v : p) total += v = std::exp(v - most);
  for (double& v : p) v /= total;
  return p;
}

void attend_plain(const AttentionTile& tile) {
  const KvLayout& layout = *tile.layout;
  const int64_t values = tile.values_at();
  for (size_t q = 0; q < tile.queries.size(); ++q) {
    const std::vector<double> p = attention_weights(tile, q);
    if (tile.largest != nullptr) raise_largest(tile, q);
    for (int64_t i = 0; i < layout.head_dim; ++i) {
      double sum = 0;
      for (int64_t t = 0; t < tile.visible[q]; ++t) {
        const int64_t at = values + t % kBlockTokens * layout.padded_dim() + i;
        sum += p[t] * read(layout, tile.block(t), at);
      }
      tile.outputs[q][i] = static_cast<float>(sum);
    }
  }
}

}  // namespace dex::kernels
