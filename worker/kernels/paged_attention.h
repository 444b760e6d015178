#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/kernels/weight_view.h"

namespace dex::kernels {

// Tokens in a block of the KV cache: one AVX-512 vector of fp32.
inline constexpr int64_t kBlockTokens = 16;

// How one layer's keys and values of 16 tokens lie in a block: for each KV head the keys as
// [d][16], so that one vector holds one coordinate of all tokens and scores need no sums across
// lanes, then the values as [16][d_padded]. d is padded to a multiple of 16 for the values; the
// padding stays 0.
struct KvLayout {
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  Number number = Number::kBf16;

  [[nodiscard]] int64_t padded_dim() const { return (head_dim + 15) / 16 * 16; }
  [[nodiscard]] int64_t head_elements() const { return kBlockTokens * (head_dim + padded_dim()); }
  [[nodiscard]] int64_t block_elements() const { return kv_heads * head_elements(); }
  [[nodiscard]] int64_t block_bytes() const { return block_elements() * bytes_of(number); }
};

// Writes one token's key (already rotated) and value, [head_dim] each, of one KV head at `slot` of
// a block; bf16 is rounded to nearest even.
void write_kv(const KvLayout& layout, void* block, int64_t kv_head, int64_t slot, const float* key,
              const float* value);

// Queries of one sequence that read the same KV head: the query heads of its group, for one or some
// tokens.
struct AttentionTile {
  const KvLayout* layout = nullptr;
  int64_t kv_head = 0;
  const void* memory = nullptr;           // block 0 of this layer
  int64_t stride_bytes = 0;               // from block to block
  std::span<const int32_t> blocks;        // by position / 16
  float scale = 0;                        // 1/√d
  std::span<const float* const> queries;  // [head_dim] each, rotated; at most kMostQueries
  std::span<const int64_t> visible;       // tokens up to each query's own, itself included: ≥ 1
  std::span<float* const> outputs;        // [head_dim] each
  std::span<const int64_t> hidden = {};   // of those, the first so many are not seen; empty: 0
  // The head whose values are mixed where it is not the keys' own, as differential attention has
  // it (method.md §8.2); −1: kv_head.
  int64_t value_head = -1;
  // Raised to the largest |score| that a query sees, before the softmax; null: nobody wants it.
  float* largest = nullptr;

  // Of a block: its first element of this tile's keys, of its values.
  [[nodiscard]] int64_t keys_at() const { return kv_head * layout->head_elements(); }
  [[nodiscard]] int64_t values_at() const {
    return (value_head < 0 ? kv_head : value_head) * layout->head_elements() +
           kBlockTokens * layout->head_dim;
  }
  [[nodiscard]] const void* block(int64_t position) const {
    return static_cast<const char*>(memory) + blocks[position / kBlockTokens] * stride_bytes;
  }
};
inline constexpr int64_t kMostQueries = 24;

// Memory for one tile, a thread: no allocation in the step.
class AttentionScratch {
 public:
  explicit AttentionScratch(const KvLayout& layout);
  [[nodiscard]] float* scores() { return memory_.data(); }  // [kMostQueries][64]
  [[nodiscard]] float* sums() {
    return memory_.data() + kMostQueries * 64;
  }  // [kMostQueries][padded_dim]

 private:
  std::vector<float> memory_;
};

// softmax(q·Kᵀ·scale)·V over tokens [hidden, visible) (method.md §2.1), in one pass with a running
// maximum. A query's result does not depend on the others in the tile. Spans of 64 tokens that
// nobody sees are not read.
void attend(const AttentionTile& tile, AttentionScratch& scratch);

// One row of the map that attend() never makes: the weights of the tile's query number `query` over
// tokens 0 … visible − 1, in double; 0 where it sees nothing. Reads neither values nor outputs.
std::vector<double> attention_weights(const AttentionTile& tile, size_t query);

// The formula in double, one query at a time: the oracle.
void attend_plain(const AttentionTile& tile);

}  // namespace dex::kernels
