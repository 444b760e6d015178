#include "worker/model/peft_config.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "worker/model/json_fields.h"

namespace dex::model {

namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kMostRankRead = 4096;

// Keys that are read below, and those that change nothing about the adapted model.
const std::vector<std::string_view> kRead{"peft_type",
                                          "task_type",
                                          "r",
                                          "lora_alpha",
                                          "lora_dropout",
                                          "target_modules",
                                          "use_rslora",
                                          "rank_pattern",
                                          "alpha_pattern",
                                          "bias",
                                          "fan_in_fan_out",
                                          "init_lora_weights",
                                          "exclude_modules",
                                          "layers_to_transform"};
const std::vector<std::string_view> kWithoutEffect{
    "base_model_name_or_path", "revision",         "inference_mode", "auto_mapping", "peft_version",
    "megatron_core",           "qalora_group_size"};

// Why a variant that is switched on is refused, where more can be said than that it is not known.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kVariants{
    {{"use_dora", "DoRA rescales whole columns"},
     {"modules_to_save", "it holds trained copies of whole modules"},
     {"lora_bias", "it adds biases"},
     {"trainable_token_indices", "it holds trained embeddings"}}};

bool contains(const std::vector<std::string_view>& list, const std::string& key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

bool is_off(const nlohmann::json& value) {
  if (value.is_null() || value == false) return true;
  if (value.is_number()) return value == 0;
  return (value.is_array() || value.is_object() || value.is_string()) && value.empty();
}

void refuse_variants(const nlohmann::json& json, const JsonFields& fields) {
  for (const auto& [key, value] : json.items()) {
    if (contains(kRead, key) || contains(kWithoutEffect, key) || is_off(value)) continue;
    std::string why = "this variant of LoRA is not supported";
    for (const auto& [variant, reason] : kVariants) {
      if (variant == key) why += ": " + std::string(reason);
    }
    fields.fail(key, "nothing (" + why + ")", value.dump().substr(0, 60));
  }
  if (fields.has("bias") && fields.text("bias") != "none") {
    fields.fail("bias", "\"none\" (trained biases are not supported)",
                "\"" + fields.text("bias").substr(0, 60) + "\"");
  }
  if (fields.has("fan_in_fan_out") && fields.boolean("fan_in_fan_out")) {
    fields.fail("fan_in_fan_out", "false (weights of this model are [out, in])", "true");
  }
  if (!fields.has("init_lora_weights") || fields.raw("init_lora_weights").is_boolean()) return;
  const std::string init = fields.text("init_lora_weights");
  if (init != "gaussian" && init != "eva" && init != "orthogonal") {
    fields.fail(
        "init_lora_weights",
        "true, false, \"gaussian\", \"orthogonal\" or \"eva\" (other starts rewrite the base's "
        "weights; convert the adapter with PEFT first)",
        "\"" + init.substr(0, 60) + "\"");
  }
}

// PEFT's rule: a name stands for every module whose path is it or ends in "." and it.
bool names_module(const std::string& pattern, const std::string& module) {
  return module == pattern || (module.size() > pattern.size() && module.ends_with(pattern) &&
                               module[module.size() - pattern.size() - 1] == '.');
}

std::vector<std::string> read_names(const JsonFields& fields, const std::string& key) {
  std::vector<std::string> names;
  if (!fields.has(key)) return names;
  const auto& json = fields.raw(key);
  const std::string expected = "a list of module names (not a regular expression)";
  if (!json.is_array()) fields.fail(key, expected, json.dump().substr(0, 60));
  for (const auto& name : json) {
    if (!name.is_string()) fields.fail(key, expected, name.dump().substr(0, 60));
    names.push_back(name.get<std::string>());
  }
  return names;
}

// The value of the pattern that names the module. PEFT takes regular expressions here and the first
// that fits in the file's order; it writes module paths itself, and only these are read, each
// module named by one value.
double by_pattern(const JsonFields& fields, const std::string& key, const std::string& module,
                  double otherwise) {
  if (!fields.has(key)) return otherwise;
  const auto& patterns = fields.raw(key);
  if (!patterns.is_object()) fields.fail(key, "an object", patterns.dump().substr(0, 60));
  std::optional<double> found;
  for (const auto& [text, value] : patterns.items()) {
    const bool whole = text.starts_with("^");
    const std::string pattern = whole ? text.substr(1) : text;
    const bool plain = std::all_of(pattern.begin(), pattern.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '.';
    });
    if (!plain || !value.is_number())
      fields.fail(key, "numbers by module path", "\"" + text.substr(0, 60) + "\"");
    if (!(whole ? module == pattern : names_module(pattern, module))) continue;
    if (found && *found != value.get<double>()) fields.fail(key, "one value for " + module, "two");
    found = value.get<double>();
  }
  return found.value_or(otherwise);
}

std::vector<int64_t> read_layers(const JsonFields& fields, int64_t layers) {
  std::vector<int64_t> list;
  if (!fields.has("layers_to_transform")) {
    for (int64_t layer = 0; layer < layers; ++layer) list.push_back(layer);
    return list;
  }
  const auto& json = fields.raw("layers_to_transform");
  const auto add = [&](const nlohmann::json& value) {
    if (!value.is_number_integer() || value < 0 || value >= layers) {
      fields.fail("layers_to_transform", "layers from 0 to " + std::to_string(layers - 1),
                  value.dump().substr(0, 60));
    }
    list.push_back(value.get<int64_t>());
  };
  if (!json.is_array()) {
    add(json);
    return list;
  }
  for (const auto& value : json) add(value);
  return list;
}

Json layers_with_terms(const Adaptation& adaptation) {
  Json list = Json::array();
  for (size_t i = 0; i < adaptation.layers.size(); ++i) {
    const LoraTensors& lora = adaptation.layers[i].lora;
    if (std::any_of(kLinears.begin(), kLinears.end(),
                    [&lora](Linear linear) { return lora[linear].defined(); }))
      list.push_back(i);
  }
  return list;
}

// The term of one module as the config describes it, its tensors not filled yet.
LowRank term(const JsonFields& fields, const LoraOptions& options, const LinearShape& shape,
             const std::string& module) {
  const double rank = by_pattern(fields, "rank_pattern", module, static_cast<double>(options.r));
  if (rank != std::floor(rank) || rank < 1 || rank > kMostRankRead) {
    fields.fail("rank_pattern", "whole numbers from 1 to " + std::to_string(kMostRankRead),
                std::to_string(rank));
  }
  const double alpha = by_pattern(fields, "alpha_pattern", module, options.alpha);
  const auto r = static_cast<int64_t>(rank);
  return {at::empty({r, shape.in}, at::kFloat), at::empty({shape.out, r}, at::kFloat),
          lora_scale(alpha, r, options.rslora)};
}

}  // namespace

bool is_peft_lora(std::string_view json, const std::string& source) {
  const nlohmann::json object = parse_object(json, "adapter", source);
  return object.contains("peft_type") && object["peft_type"] == "LORA";
}

std::string peft_config_json(const Adapter& adapter) {
  const LoraOptions& lora = adapter.adaptation.options.lora;
  // PEFT's type is int, though it computes with whatever it reads.
  const bool whole = lora.alpha == std::floor(lora.alpha);
  const Json alpha = whole ? Json(static_cast<int64_t>(lora.alpha)) : Json(lora.alpha);
  Json targets = Json::array();
  for (const Linear linear : lora.targets) targets.push_back(name(linear));
  Json json = {{"peft_type", "LORA"},
               {"task_type", "CAUSAL_LM"},
               {"base_model_name_or_path", adapter.base_model_name_or_path},
               {"revision", adapter.revision.empty() ? Json() : Json(adapter.revision)},
               {"inference_mode", true},
               {"r", lora.r},
               {"lora_alpha", alpha},
               {"lora_dropout", lora.dropout},
               {"target_modules", targets},
               {"use_rslora", lora.rslora},
               {"rank_pattern", Json::object()},
               {"alpha_pattern", Json::object()},
               {"bias", "none"},
               {"fan_in_fan_out", false},
               {"init_lora_weights", true},
               {"use_dora", false},
               {"modules_to_save", nullptr}};
  const Json layers = layers_with_terms(adapter.adaptation);
  if (layers.size() < adapter.adaptation.layers.size()) json["layers_to_transform"] = layers;
  return json.dump(2) + "\n";
}

Adapter parse_peft_config(std::string_view text, const Config& config, const std::string& source) {
  const nlohmann::json json = parse_object(text, "adapter", source);
  const JsonFields fields(json, "adapter", source);
  if (fields.text("peft_type") != "LORA")
    fields.fail("peft_type", "\"LORA\"", fields.text("peft_type"));
  if (fields.has("task_type") && fields.text("task_type") != "CAUSAL_LM")
    fields.fail("task_type", "\"CAUSAL_LM\"", fields.text("task_type"));
  refuse_variants(json, fields);

  Adapter adapter;
  DexOptions& options = adapter.adaptation.options;
  options.form = Form::kNone;
  options.train = Train::kLora;
  options.lora.r = fields.integer("r", 1, kMostRankRead);
  options.lora.alpha = fields.number("lora_alpha");
  options.lora.dropout = 0;  // says how it was trained; a loaded adapter drops nothing
  options.lora.rslora = fields.has("use_rslora") && fields.boolean("use_rslora");
  options.lora.targets.clear();
  adapter.selected_heads.resize(static_cast<size_t>(config.layers));
  adapter.lambda.assign(static_cast<size_t>(config.layers), 0);
  if (fields.has("base_model_name_or_path"))
    adapter.base_model_name_or_path = fields.text("base_model_name_or_path");
  if (fields.has("revision")) adapter.revision = fields.text("revision");

  const auto targets = read_names(fields, "target_modules"),
             excluded = read_names(fields, "exclude_modules");
  std::vector<bool> used(targets.size());
  adapter.adaptation.layers.resize(static_cast<size_t>(config.layers));
  const std::vector<int64_t> layers = read_layers(fields, config.layers);
  if (!layers.empty()) options.first_layer = *std::min_element(layers.begin(), layers.end());
  for (const int64_t layer : layers) {
    for (const Linear linear : kLinears) {
      const std::string module =
          "model.layers." + std::to_string(layer) + "." + std::string(path(linear));
      const auto names_it = [&](const std::string& pattern) {
        return names_module(pattern, module);
      };
      const auto target = std::find_if(targets.begin(), targets.end(), names_it);
      if (target == targets.end()) continue;
      used[static_cast<size_t>(target - targets.begin())] = true;
      if (std::any_of(excluded.begin(), excluded.end(), names_it)) continue;
      adapter.adaptation.layers[static_cast<size_t>(layer)].lora[linear] =
          term(fields, options.lora, shape_of(linear, config), module);
      if (std::find(options.lora.targets.begin(), options.lora.targets.end(), linear) ==
          options.lora.targets.end())
        options.lora.targets.push_back(linear);
    }
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!used[i]) {
      fields.fail("target_modules", "linears of the decoder's layers (q_proj … down_proj)",
                  "\"" + targets[i].substr(0, 60) + "\"");
    }
  }
  if (options.lora.targets.empty())
    fields.fail("target_modules", "at least one linear", "none in any layer");
  return adapter;
}

}  // namespace dex::model
