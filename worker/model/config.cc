#include "worker/model/config.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "services/base/files.h"
#include "worker/model/families.h"
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

RopeScaling read_scaling(const JsonFields& rope, const JsonFields& fields) {
  const char* key = rope.has("rope_type") ? "rope_type" : "type";  // `type`: before 2024
  RopeScaling scaling;
  if (!rope.has(key) && !rope.has("factor")) return scaling;
  const std::string type = rope.text(key);
  if (type == "default") return scaling;
  if (type != "linear" && type != "llama3") {
    rope.fail(
        key,
        "\"default\", \"linear\" or \"llama3\"; without the scaling the model works up to the "
        "length that it was trained for",
        "\"" + type.substr(0, 60) + "\"");
  }
  scaling.type = type == "linear" ? RopeScaling::Type::kLinear : RopeScaling::Type::kLlama3;
  scaling.factor = rope.number("factor");
  if (scaling.factor < 1)
    rope.fail("factor", "a number of at least 1", std::to_string(scaling.factor));
  if (scaling.type == RopeScaling::Type::kLinear) return scaling;
  scaling.low_freq_factor = positive(rope, "low_freq_factor");
  scaling.high_freq_factor = rope.number("high_freq_factor");
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    rope.fail("high_freq_factor",
              "a number above low_freq_factor = " + std::to_string(scaling.low_freq_factor),
              std::to_string(scaling.high_freq_factor));
  }
  // transformers prefers the one outside, where there is one.
  const char* original = "original_max_position_embeddings";
  scaling.original_max_position_embeddings =
      (fields.has(original) ? fields : rope).integer(original, 1, kMaxPositions);
  return scaling;
}

// transformers writes `rope_theta` and `rope_scaling` (up to 4.x), or both inside `rope_parameters`
// (5.x).
void read_rope(const JsonFields& fields, Config& config) {
  const auto whole_heads = [](const JsonFields& where) {
    const char* key = "partial_rotary_factor";
    if (where.has(key) && where.number(key) != 1)
      where.fail(key, "1 (every pair of a head turns)", where.raw(key).dump());
  };
  whole_heads(fields);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!fields.has(key)) continue;
    const JsonFields rope = fields.object(key);
    whole_heads(rope);
    config.rope_scaling = read_scaling(rope, fields);
    if (rope.has("rope_theta")) config.rope_theta = positive(rope, "rope_theta");
  }
  if (config.rope_theta == 0) config.rope_theta = positive(fields, "rope_theta");
}

// Whether the window of a kSwitched family is on: in every layer or in none.
bool layers_slide(const JsonFields& fields, int64_t layers) {
  const bool on = fields.has("use_sliding_window") && fields.boolean("use_sliding_window");
  int64_t sliding = 0;
  if (fields.has("layer_types")) {
    for (const auto& type : fields.raw("layer_types")) sliding += type != "full_attention";
  } else if (on) {
    sliding = layers - std::min(layers, fields.integer("max_window_layers", 0, kMaxLayers));
  }
  if (sliding == 0 || (on && sliding == layers)) return sliding != 0;
  fields.fail(fields.has("layer_types") ? "layer_types" : "max_window_layers",
              "the same attention in all " + std::to_string(layers) + " layers",
              "a sliding window in " + std::to_string(sliding) + " of them" +
                  (on ? "" : " while use_sliding_window is not true"));
}

int64_t read_window(const JsonFields& fields, const Family& family, const Config& config) {
  const char* key = "sliding_window";
  if (family.window == Family::Window::kNone && fields.has(key))
    fields.fail(key, "nothing or null for a " + config.model_type, fields.raw(key).dump());
  const bool there =
      family.window == Family::Window::kEveryLayer
          ? !fields.raw(key).is_null()  // missing, transformers would take 4096
          : family.window == Family::Window::kSwitched && layers_slide(fields, config.layers);
  if (!there) return 0;
  const int64_t window = fields.integer(key, 1, kMaxPositions);
  return window < config.max_position_embeddings ? window : 0;
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

const Family& read_family(const JsonFields& fields) {
  const std::string type = fields.text("model_type");
  const Family* family = find_family(type);
  if (family != nullptr) return *family;
  std::string names;
  for (const Family& known : families())
    names += (names.empty() ? "" : ", ") + std::string(known.model_type);
  fields.fail("model_type", "one of " + names, "\"" + type.substr(0, 60) + "\"");
}

bool has(const JsonFields& fields, Family::Has has, const std::string& key) {
  if (has != Family::Has::kAsKeySays) return has == Family::Has::kYes;
  return fields.has(key) && fields.boolean(key);
}

void refuse_other_architectures(const JsonFields& fields) {
  if (fields.text("hidden_act") != "silu") {
    fields.fail("hidden_act", "\"silu\"", "\"" + fields.text("hidden_act") + "\"");
  }
  const std::pair<const char*, const char*> unknown[] = {
      {"quantization_config", "not supported"},
      // method.md §3.6
      {"attn_logit_softcapping",
       "model uses logit softcap: the log-sum-exp identity does not hold, and there is no direct "
       "path here"},
      {"final_logit_softcapping",
       "model uses logit softcap: its logits are not the last product's"}};
  for (const auto& [key, why] : unknown) {
    if (fields.has(key)) {
      fields.fail(key, "nothing (" + std::string(why) + ")", fields.raw(key).dump().substr(0, 60));
    }
  }
}

// The key that second_map.h writes.
Attention read_attention(const JsonFields& fields, const Family& family) {
  const char* key = "differential_attention";
  if (!fields.has(key)) return family.attention;
  if (family.attention != Attention::kSoftmax) {
    fields.fail(key, "nothing for a " + std::string(family.model_type), fields.raw(key).dump());
  }
  const JsonFields block = fields.object(key);
  const std::string version = block.text("version");
  if (version == "V1") return Attention::kSecondMapV1;
  if (version == "V2") return Attention::kSecondMapV2;
  block.fail("version", "\"V1\" or \"V2\"", "\"" + version.substr(0, 60) + "\"");
}

// What transformers asks of a DiffLlama too.
void check_pairs(const JsonFields& fields, const Config& config) {
  if (config.kv_heads % 2 != 0) {
    fields.fail("num_key_value_heads",
                "an even number, since a " + config.model_type + " subtracts heads in pairs",
                std::to_string(config.kv_heads));
  }
  const char* dropout = "attention_dropout";
  if (fields.has(dropout) && fields.number(dropout) != 0) {
    fields.fail(dropout, "0, the one value that has a meaning between two maps",
                fields.raw(dropout).dump());
  }
}

}  // namespace

std::string Config::kind() const {
  if (!has_second_map()) return model_type;
  return model_type + " with differential_attention " +
         (attention == Attention::kSecondMapV1 ? "V1" : "V2");
}

int64_t Config::parameter_count() const {
  const int64_t q = query_heads() * head_dim, k = key_heads() * head_dim, v = kv_heads * head_dim,
                o = heads * head_dim;
  int64_t layer =
      hidden_size * (q + k + v + o) + 3 * hidden_size * intermediate_size + 2 * hidden_size;
  if (qkv_bias) layer += q + k + v;
  if (o_bias) layer += hidden_size;
  if (qk_norm) layer += 2 * head_dim;
  if (mlp_bias) layer += 2 * intermediate_size + hidden_size;
  if (attention == Attention::kSecondMapV2) {
    layer += heads * hidden_size;
  } else if (differential()) {
    layer += 4 * head_dim;
  }
  const int64_t ends = vocab_size * hidden_size * (tie_word_embeddings ? 1 : 2) + hidden_size;
  return layers * layer + ends;
}

Config parse_config(std::string_view json, const std::string& source) {
  const nlohmann::json object = parse_object(json, "config", source);
  const JsonFields fields(object, "config", source);
  const Family& family = read_family(fields);
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
  } else if (family.head_dim != 0) {
    config.head_dim = family.head_dim;
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
  if (config.heads * config.head_dim > kMaxWidth) {
    fields.fail("head_dim",
                "at most " + std::to_string(kMaxWidth / config.heads) + " with " +
                    std::to_string(config.heads) + " heads",
                std::to_string(config.head_dim));
  }
  config.max_position_embeddings = fields.integer("max_position_embeddings", 1, kMaxPositions);
  config.rms_norm_eps = positive(fields, "rms_norm_eps");
  read_rope(fields, config);
  config.attention = read_attention(fields, family);
  if (config.attention == Attention::kDiffLlama) check_pairs(fields, config);
  config.sliding_window = read_window(fields, family, config);
  config.tie_word_embeddings =
      fields.has("tie_word_embeddings") && fields.boolean("tie_word_embeddings");
  config.qkv_bias = has(fields, family.qkv_bias, "attention_bias");
  config.o_bias = has(fields, family.o_bias, "attention_bias");
  config.mlp_bias = has(fields, family.mlp_bias, "mlp_bias");
  config.qk_norm = family.qk_norm;
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
