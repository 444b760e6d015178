#include "scheduler/server/model_shape.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace dex::server {

namespace {

using nlohmann::json;

enum class Has { kNo, kYes, kAsKeySays };

struct Family {
  std::string_view model_type;
  Has qkv_bias, o_bias;  // key attention_bias
  Has mlp_bias;          // key mlp_bias
  bool qk_norm;
  int32_t head_dim;  // of a config without the key; 0: hidden_size / num_attention_heads
  bool differential = false;
};

constexpr Family kFamilies[] = {
    {"diffllama", Has::kAsKeySays, Has::kAsKeySays, Has::kNo, false, 0, true},
    {"llama", Has::kAsKeySays, Has::kAsKeySays, Has::kAsKeySays, false, 0},
    {"mistral", Has::kNo, Has::kNo, Has::kNo, false, 0},
    {"qwen2", Has::kYes, Has::kNo, Has::kNo, false, 0},
    {"qwen3", Has::kAsKeySays, Has::kAsKeySays, Has::kNo, true, 128},
};

base::Result<Family> family_of(const json& config) {
  const auto type = config.find("model_type");
  const std::string found =
      type != config.end() && type->is_string() ? type->get<std::string>() : "";
  const auto* family = std::ranges::find(kFamilies, found, &Family::model_type);
  if (family != std::end(kFamilies)) return *family;
  std::string names;
  for (const Family& known : kFamilies)
    names += (names.empty() ? "" : ", ") + std::string(known.model_type);
  return base::invalid_argument("INVALID_FIELD", "config.json: 'model_type' must be one of " +
                                                     names + ", got '" + found +
                                                     "'; take the model off the list");
}

// A whole number of config.json; `otherwise` < 0 makes it required.
base::Result<int32_t> whole(const json& config, const char* key, int32_t otherwise = -1) {
  const auto found = config.find(key);
  if (found != config.end() && found->is_number_integer()) {
    const auto value = found->get<int64_t>();
    if (value > 0 && value <= INT32_MAX) return static_cast<int32_t>(value);
  }
  if (otherwise >= 0 && (found == config.end() || found->is_null())) return otherwise;
  return base::invalid_argument(
      "INVALID_FIELD", std::string("config.json: '") + key + "' must be a whole number above 0");
}

bool flag(const json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_boolean() && found->get<bool>();
}

bool has(Has has, const json& config, const char* key) {
  return has == Has::kYes || (has == Has::kAsKeySays && flag(config, key));
}

// What method diff added to a layer (worker/model/second_map.h); 0 of any other model.
int64_t second_map_parameters(const json& config, const v1::Model& m) {
  const auto block = config.find("differential_attention");
  if (block == config.end() || !block->is_object()) return 0;
  const int64_t hidden = m.hidden_size(), row = hidden + (m.attention_bias() ? 1 : 0);
  const int64_t query = int64_t{m.query_heads()} * m.head_dim();
  const int64_t key = int64_t{m.kv_heads()} * m.head_dim();
  if (block->value("version", "") == "V1") return (query + key) * row + 4 * m.head_dim();
  return query * row + m.query_heads() * hidden;
}

// Every weight, counted from the shape; a tied embedding once.
int64_t parameter_count(const v1::Model& m, bool mlp_bias, int64_t second_map) {
  const int64_t hidden = m.hidden_size(), intermediate = m.intermediate_size();
  const int64_t query = int64_t{m.query_heads()} * m.head_dim();
  const int64_t key_value = int64_t{m.kv_heads()} * m.head_dim();
  int64_t layer = hidden * (2 * query + 2 * key_value) + 3 * hidden * intermediate + 2 * hidden;
  if (m.attention_bias()) layer += query + 2 * key_value;
  if (m.output_bias()) layer += hidden;
  if (mlp_bias) layer += 2 * intermediate + hidden;
  if (m.qk_norm()) layer += 2 * m.head_dim();
  if (m.differential() && second_map == 0) layer += 4 * m.head_dim();
  layer += second_map;
  const int64_t embedding = int64_t{m.vocab_size()} * hidden;
  return m.layers() * layer + hidden + embedding * (m.tied_embeddings() ? 1 : 2);
}

}  // namespace

base::Status read_model_shape(const json& config, v1::Model& model) {
  DEX_ASSIGN_OR_RETURN(const int32_t layers, whole(config, "num_hidden_layers"));
  DEX_ASSIGN_OR_RETURN(const int32_t heads, whole(config, "num_attention_heads"));
  DEX_ASSIGN_OR_RETURN(const int32_t kv_heads, whole(config, "num_key_value_heads", heads));
  DEX_ASSIGN_OR_RETURN(const int32_t hidden, whole(config, "hidden_size"));
  DEX_ASSIGN_OR_RETURN(const Family family, family_of(config));
  const int32_t usual_width = family.head_dim != 0 ? family.head_dim : hidden / heads;
  DEX_ASSIGN_OR_RETURN(const int32_t head_dim, whole(config, "head_dim", usual_width));
  DEX_ASSIGN_OR_RETURN(const int32_t intermediate, whole(config, "intermediate_size"));
  DEX_ASSIGN_OR_RETURN(const int32_t context, whole(config, "max_position_embeddings"));
  DEX_ASSIGN_OR_RETURN(const int32_t vocabulary, whole(config, "vocab_size"));
  model.set_family(std::string(family.model_type));
  model.set_layers(layers);
  model.set_query_heads(heads);
  model.set_kv_heads(kv_heads);
  model.set_head_dim(head_dim);
  model.set_hidden_size(hidden);
  model.set_intermediate_size(intermediate);
  model.set_context_length(context);
  model.set_vocab_size(vocabulary);
  model.set_attention_bias(has(family.qkv_bias, config, "attention_bias"));
  model.set_output_bias(has(family.o_bias, config, "attention_bias"));
  model.set_qk_norm(family.qk_norm);
  const int64_t second_map = second_map_parameters(config, model);
  model.set_differential(family.differential || second_map != 0);
  model.set_tied_embeddings(flag(config, "tie_word_embeddings"));
  model.set_parameters(
      parameter_count(model, has(family.mlp_bias, config, "mlp_bias"), second_map));
  return {};
}

}  // namespace dex::server
