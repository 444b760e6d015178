#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace dex::model {

// How RoPE's frequencies are stretched for a longer context; the formulas are in
// rope_frequencies.h.
struct RopeScaling {
  enum class Type { kNone, kLinear, kLlama3 };
  Type type = Type::kNone;
  double factor = 1;                             // both kinds; ≥ 1
  double low_freq_factor = 0;                    // kLlama3, as the next two
  double high_freq_factor = 0;                   // above low_freq_factor
  int64_t original_max_position_embeddings = 0;  // tokens
};

// What a layer makes of its query heads' maps.
enum class Attention {
  kSoftmax,  // each mixes values by itself
  // Pairs of heads are subtracted: V1 of method.md §8, in DiffLlama's layout, with pairs (i, i +
  // H/2) and values twice as wide as keys, V head j with V head j + K/2. H and K are even.
  kDiffLlama,
  // A model that method `diff` made (second_map.h): beside each query head a second one, whose map
  // is subtracted from the first's; with V1 beside each key head too. Heads 2i and 2i + 1 of q_proj
  // (V1: of k_proj) are a pair.
  kSecondMapV1,
  kSecondMapV2,
};

// The shape of a decoder of one of the families (families.h), as its config.json states it. Plain
// numbers, no defaults for what decides the result: a missing or odd value is refused by the key's
// name.
struct Config {
  std::string model_type;  // of families.h
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;        // D
  int64_t intermediate_size = 0;  // width of the gated MLP
  int64_t layers = 0;             // L
  int64_t heads = 0;              // H, query heads
  int64_t kv_heads = 0;           // K; H % K = 0
  int64_t head_dim = 0;           // d
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  double rope_theta = 0;
  RopeScaling rope_scaling;
  // A token sees itself and the sliding_window − 1 tokens before it. 0: all before it; so a window
  // that max_position_embeddings never fills.
  int64_t sliding_window = 0;
  Attention attention = Attention::kSoftmax;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // biases on q, k and v
  bool o_bias = false;    // bias on o
  bool mlp_bias = false;
  bool qk_norm = false;       // RMSNorm over the d numbers of each query and key head, before RoPE
  int64_t bos_token_id = -1;  // -1: none
  std::vector<int64_t> eos_token_ids;  // may be empty

  [[nodiscard]] bool differential() const { return attention != Attention::kSoftmax; }
  [[nodiscard]] bool has_second_map() const {
    return attention == Attention::kSecondMapV1 || attention == Attention::kSecondMapV2;
  }
  // Heads of q_proj and k_proj. V has kv_heads and o_proj reads H·d numbers, always.
  [[nodiscard]] int64_t query_heads() const { return has_second_map() ? 2 * heads : heads; }
  [[nodiscard]] int64_t key_heads() const {
    return attention == Attention::kSecondMapV1 ? 2 * kv_heads : kv_heads;
  }
  [[nodiscard]] int64_t heads_per_kv() const { return query_heads() / key_heads(); }
  // Heads as o_proj reads them, one map each, and their width: H·d numbers together, always.
  // DiffLlama's pairs are one head of width 2d.
  [[nodiscard]] int64_t output_heads() const {
    return attention == Attention::kDiffLlama ? heads / 2 : heads;
  }
  [[nodiscard]] int64_t output_width() const { return heads * head_dim / output_heads(); }
  // "llama", "diffllama", "llama with differential_attention V2".
  [[nodiscard]] std::string kind() const;
  [[nodiscard]] int64_t parameter_count() const;  // tied embeddings counted once
};

// Parses config.json's text; `source` is its name in messages. Throws "[config] <source>: key …,
// expected …, found …" on a missing key, a wrong type or range, a family, RoPE scaling or
// activation that there isn't here, and on layers that differ in their attention.
Config parse_config(std::string_view json, const std::string& source);

// Reads `dir`/config.json (at most 1 MiB).
Config load_config(const std::filesystem::path& dir);

}  // namespace dex::model
