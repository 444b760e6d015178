#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/kernels/philox.h"
#include "worker/model/config.h"
#include "worker/model/safetensors.h"
#include "worker/model/weights.h"

namespace dex::train::testing {

// A Llama with everything that a large one has (several query heads a key head, tied embeddings),
// small enough for thousands of steps in a test.
inline model::Config tiny_config() {
  model::Config config;
  config.model_type = "llama";
  config.vocab_size = 97;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.max_position_embeddings = 256;
  config.rms_norm_eps = 1e-5;
  config.rope_theta = 10000;
  config.tie_word_embeddings = true;
  return config;
}

// U(−scale, scale), a function of `stream` alone.
inline at::Tensor random_tensor(at::IntArrayRef shape, uint64_t stream, double scale) {
  at::Tensor out = at::empty(shape, at::kFloat);
  float* values = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    values[i] = static_cast<float>(
        (2 * kernels::random_unit(11, stream, static_cast<uint64_t>(i)) - 1) * scale);
  }
  return out;
}

inline model::Weights tiny_weights(const model::Config& c) {
  model::Weights weights;
  uint64_t stream = 0;
  const auto matrix = [&](int64_t out, int64_t in) {
    return random_tensor({out, in}, ++stream, 0.25);
  };
  const auto norm = [&] { return random_tensor({c.hidden_size}, ++stream, 0.2).add_(1); };
  weights.embed = random_tensor({c.vocab_size, c.hidden_size}, ++stream, 0.5);
  for (int64_t l = 0; l < c.layers; ++l) {
    model::LayerWeights layer;
    layer.input_norm = norm();
    layer.q = matrix(c.heads * c.head_dim, c.hidden_size);
    layer.k = matrix(c.kv_heads * c.head_dim, c.hidden_size);
    layer.v = matrix(c.kv_heads * c.head_dim, c.hidden_size);
    layer.o = matrix(c.hidden_size, c.heads * c.head_dim);
    layer.post_norm = norm();
    layer.gate = matrix(c.intermediate_size, c.hidden_size);
    layer.up = matrix(c.intermediate_size, c.hidden_size);
    layer.down = matrix(c.hidden_size, c.intermediate_size);
    weights.layers.push_back(layer);
  }
  weights.norm = norm();
  weights.lm_head = weights.embed;
  return weights;
}

// The same model as a Hugging Face folder without a tokenizer.
inline void write_tiny_model(const std::filesystem::path& folder) {
  const model::Config c = tiny_config();
  std::filesystem::create_directories(folder);
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"vocab_size", c.vocab_size},
                                 {"hidden_size", c.hidden_size},
                                 {"intermediate_size", c.intermediate_size},
                                 {"num_hidden_layers", c.layers},
                                 {"num_attention_heads", c.heads},
                                 {"num_key_value_heads", c.kv_heads},
                                 {"head_dim", c.head_dim},
                                 {"max_position_embeddings", c.max_position_embeddings},
                                 {"rms_norm_eps", c.rms_norm_eps},
                                 {"rope_theta", c.rope_theta},
                                 {"tie_word_embeddings", true},
                                 {"hidden_act", "silu"},
                                 {"attention_bias", false},
                                 {"mlp_bias", false},
                                 {"bos_token_id", 1},
                                 {"eos_token_id", 2},
                                 {"torch_dtype", "float32"}};
  std::ofstream(folder / "config.json") << config.dump(1);
  model::write_safetensors(folder / "model.safetensors", model::named_weights(tiny_weights(c)));
}

// Rows of token ids with structure to learn (each id mostly follows from the one before), of 3 to
// `max_tokens` ids; every fourth row's first half is not trained.
inline std::vector<std::vector<int32_t>> tiny_rows(int count, int max_tokens,
                                                   uint64_t stream = 77) {
  std::vector<std::vector<int32_t>> rows;
  uint64_t index = 0;
  const auto draw = [&](int bound) {
    return static_cast<int>(kernels::random_unit(5, stream, index++) * bound);
  };
  for (int r = 0; r < count; ++r) {
    std::vector<int32_t> row{draw(97)};
    const int length = 3 + draw(max_tokens - 2);
    while (static_cast<int>(row.size()) < length)
      row.push_back(draw(10) == 0 ? draw(97) : (row.back() * 5 + 3) % 97);
    rows.push_back(row);
  }
  return rows;
}

inline void write_rows(const std::filesystem::path& file,
                       const std::vector<std::vector<int32_t>>& rows) {
  std::ofstream out(file);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<int32_t> labels = rows[r];
    if (r % 4 == 3)
      std::fill(labels.begin(), labels.begin() + static_cast<int64_t>(labels.size() / 2), -100);
    out << nlohmann::json{{"input_ids", rows[r]}, {"labels", labels}}.dump() << '\n';
  }
}

}  // namespace dex::train::testing
