#include "worker/model/config.h"

#include <stdexcept>

#include "services/base/files.h"
#include "worker/model/json_fields.h"

namespace dex::model {

namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;
// Limits far above any real model: they keep later products inside int64 and allocations sane.
constexpr int64_t kMaxVocabulary = 4'000'000, kMaxWidth = 1 << 20, kMaxLayers = 4096,
                  kMaxHeads = 4096, kMaxPositions = int64_t{1} << 26;

double positive(const JsonFields& fields, const std::string& key) {
  const double value = fields.number(key);
  if (value <= 0) fields.fail(key, "a number above 0", std::to_string(value));
  return value;
}

// transformers writes `rope_theta` and `rope_scaling` (up to 4.x), or both inside `rope_parameters`
// (5.x).
double read_rope(const JsonFields& fields) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!fields.has(key)) continue;
    const JsonFields rope = fields.object(key);
    for (const char* type : {"rope_type", "type"}) {
      if (rope.has(type) && rope.text(type) != "default") {
        rope.fail(type, "\"default\" (RoPE scaling is not supported)",
                  "\"" + rope.text(type) + "\"");
      }
    }
  }
  if (fields.has("rope_parameters"))
    return positive(fields.object("rope_parameters"), "rope_theta");
  return positive(fields, "rope_theta");
}

void read_special_tokens(const JsonFields& fields, Config& config) {
  if (fields.has("bos_token_id")) {
    config.bos_token_id = fields.integer("bos_token_id", 0, config.vocab_size - 1);
  }
  if (!fields.has("eos_token_id")) return;
  const auto& eos = fields.raw("eos_token_id");
  if (!eos.is_array()) {
    config.eos_token_ids = {fields.integer("eos_token_id", 0, config.vocab_size - 1)};
    return;
  }
  for (const auto& id : eos) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 ||
        id.get<int64_t>() >= config.vocab_size) {
      fields.fail("eos_token_id", "token ids below vocab_size", id.dump());
    }
    config.eos_token_ids.push_back(id.get<int64_t>());
  }
}

void refuse_other_architectures(const JsonFields& fields) {
  const std::string type = fields.text("model_type");
  if (type != "llama") fields.fail("model_type", "\"llama\"", "\"" + type + "\"");
  if (fields.text("hidden_act") != "silu") {
    fields.fail("hidden_act", "\"silu\"", "\"" + fields.text("hidden_act") + "\"");
  }
  for (const char* key : {"quantization_config", "sliding_window", "attn_logit_softcapping"}) {
    if (fields.has(key))
      fields.fail(key, "nothing (not supported)", fields.raw(key).dump().substr(0, 60));
  }
}

}  // namespace

int64_t Config::parameter_count() const {
  const int64_t q = heads * head_dim, kv = kv_heads * head_dim;
  int64_t layer =
      hidden_size * (2 * q + 2 * kv) + 3 * hidden_size * intermediate_size + 2 * hidden_size;
  if (attention_bias) layer += q + 2 * kv + hidden_size;
  if (mlp_bias) layer += 2 * intermediate_size + hidden_size;
  const int64_t ends = vocab_size * hidden_size * (tie_word_embeddings ? 1 : 2) + hidden_size;
  return layers * layer + ends;
}

Config parse_config(std::string_view json, const std::string& source) {
  const nlohmann::json object = parse_object(json, "config", source);
  const JsonFields fields(object, "config", source);
  refuse_other_architectures(fields);

  Config config;
  config.model_type = fields.text("model_type");
  config.vocab_size = fields.integer("vocab_size", 1, kMaxVocabulary);
  config.hidden_size = fields.integer("hidden_size", 1, kMaxWidth);
  config.intermediate_size = fields.integer("intermediate_size", 1, kMaxWidth);
  config.layers = fields.integer("num_hidden_layers", 1, kMaxLayers);
  config.heads = fields.integer("num_attention_heads", 1, kMaxHeads);
  config.kv_heads = fields.has("num_key_value_heads")
                        ? fields.integer("num_key_value_heads", 1, config.heads)
                        : config.heads;
  if (config.heads % config.kv_heads != 0) {
    fields.fail("num_key_value_heads",
                "a divisor of num_attention_heads = " + std::to_string(config.heads),
                std::to_string(config.kv_heads));
  }
  if (fields.has("head_dim")) {
    config.head_dim = fields.integer("head_dim", 1, kMaxWidth);
  } else {
    if (config.hidden_size % config.heads != 0) {
      fields.fail("num_attention_heads",
                  "a divisor of hidden_size = " + std::to_string(config.hidden_size),
                  std::to_string(config.heads));
    }
    config.head_dim = config.hidden_size / config.heads;
  }
  if (config.head_dim % 2 != 0)
    fields.fail("head_dim", "an even number", std::to_string(config.head_dim));
  config.max_position_embeddings = fields.integer("max_position_embeddings", 1, kMaxPositions);
  config.rms_norm_eps = positive(fields, "rms_norm_eps");
  config.rope_theta = read_rope(fields);
  config.tie_word_embeddings =
      fields.has("tie_word_embeddings") && fields.boolean("tie_word_embeddings");
  config.attention_bias = fields.has("attention_bias") && fields.boolean("attention_bias");
  config.mlp_bias = fields.has("mlp_bias") && fields.boolean("mlp_bias");
  read_special_tokens(fields, config);
  return config;
}

Config load_config(const std::filesystem::path& dir) {
  const auto path = dir / "config.json";
  const auto text = base::read_file(path, kMaxConfigBytes);
  if (!text.ok())
    throw std::runtime_error("[config] " + path.string() + ": " + text.status().message());
  return parse_config(*text, path.string());
}

}  // namespace dex::model
