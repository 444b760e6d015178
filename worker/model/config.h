#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace dex::model {

// The shape of a Llama-family decoder, as its config.json states it. Plain numbers, no defaults for
// what decides the result: a missing or odd value is refused by the key's name.
struct Config {
  std::string model_type;  // "llama"
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
  bool tie_word_embeddings = false;
  bool attention_bias = false;  // biases on q, k, v and o
  bool mlp_bias = false;
  int64_t bos_token_id = -1;           // -1: none
  std::vector<int64_t> eos_token_ids;  // may be empty

  [[nodiscard]] int64_t heads_per_kv() const { return heads / kv_heads; }
  [[nodiscard]] int64_t parameter_count() const;  // tied embeddings counted once
};

// Parses config.json's text; `source` is its name in messages. Throws "[config] <source>: key …,
// got …" on a missing key, a wrong type or range, another architecture, RoPE scaling, or an
// activation other than SiLU.
Config parse_config(std::string_view json, const std::string& source);

// Reads `dir`/config.json (at most 1 MiB).
Config load_config(const std::filesystem::path& dir);

}  // namespace dex::model
