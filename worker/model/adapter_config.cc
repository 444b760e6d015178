#include "worker/model/adapter_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "worker/model/json_fields.h"
#include "worker/model/provenance.h"

namespace dex::model {

namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMostSteps = int64_t{1} << 53;

const std::vector<std::string_view> kKeys{"peft_type",
                                          "base_model_name_or_path",
                                          "revision",
                                          "task_type",
                                          "inference_mode",
                                          "dex_format_version",
                                          "form",
                                          "projection",
                                          "sign",
                                          "train",
                                          "selected_heads",
                                          "soft_floor",
                                          "first_layer",
                                          "lambda",
                                          "lambda_schedule",
                                          "dtype",
                                          "base_weights_sha256",
                                          "tokenizer_sha256",
                                          "chat_template_sha256",
                                          "job_id",
                                          "metrics",
                                          "branch_effect",
                                          "bottleneck_scope",
                                          "bottleneck_activation",
                                          "width_ratio",
                                          "lora",
                                          "adapter"};

Json schedule_json(const LambdaOptions& lambda) {
  Json json = {{"schedule", name(lambda.schedule)}};
  switch (lambda.schedule) {
    case Schedule::kPaperEq4:
      json["anneal_steps"] = lambda.anneal_steps;
      if (lambda.init) {
        json["init"] = *lambda.init;
      } else {
        json["init"] = "depth";
      }
      json["learn_init"] = lambda.learn_init;
      break;
    case Schedule::kSeedCosine:
      json["anneal_steps"] = lambda.anneal_steps;
      json["start"] = lambda.start;
      json["end"] = lambda.end;
      break;
    case Schedule::kConstant:
      json["value"] = lambda.value;
      break;
    case Schedule::kLearned:
      json["learn_init"] = lambda.learn_init;
      break;
  }
  return json;
}

// A name that is one of the known ones, or the reader's message with file and key in front.
template <class Parse>
auto named(const JsonFields& fields, const std::string& key, Parse parse) {
  const std::string text = fields.text(key);
  try {
    return parse(text);
  } catch (const std::runtime_error& error) {
    fields.fail(key, "a known name", "\"" + text.substr(0, 60) + "\" (" + error.what() + ")");
  }
}

LambdaOptions read_schedule(const JsonFields& fields) {
  LambdaOptions lambda;
  lambda.schedule = named(fields, "schedule", parse_schedule);
  const bool anneals =
      lambda.schedule == Schedule::kPaperEq4 || lambda.schedule == Schedule::kSeedCosine;
  if (anneals) lambda.anneal_steps = fields.integer("anneal_steps", 0, kMostSteps);
  switch (lambda.schedule) {
    case Schedule::kPaperEq4:
      fields.allow_only({"schedule", "anneal_steps", "init", "learn_init"});
      if (!fields.raw("init").is_string()) {
        lambda.init = fields.number("init");
      } else if (fields.text("init") != "depth") {
        fields.fail("init", "\"depth\" or a number",
                    "\"" + fields.text("init").substr(0, 60) + "\"");
      }
      lambda.learn_init = fields.number("learn_init");
      break;
    case Schedule::kSeedCosine:
      fields.allow_only({"schedule", "anneal_steps", "start", "end"});
      lambda.start = fields.number("start");
      lambda.end = fields.number("end");
      break;
    case Schedule::kConstant:
      fields.allow_only({"schedule", "value"});
      lambda.value = fields.number("value");
      break;
    case Schedule::kLearned:
      fields.allow_only({"schedule", "learn_init"});
      lambda.learn_init = fields.number("learn_init");
      break;
  }
  return lambda;
}

// The blocks of the parts of method.md §7, by the names of api.md §3.
Json lora_json(const LoraOptions& lora) {
  Json targets = Json::array();
  for (const Linear linear : lora.targets) targets.push_back(name(linear));
  return {{"r", lora.r},
          {"alpha", lora.alpha},
          {"dropout", lora.dropout},
          {"target_modules", targets},
          {"use_rslora", lora.rslora}};
}

void refuse(const JsonFields& fields, const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  fields.fail(problems.front().substr(0, problems.front().find(' ')), "a value that can be trained",
              problems.front());
}

LoraOptions read_lora(const JsonFields& fields) {
  fields.allow_only({"r", "alpha", "dropout", "target_modules", "use_rslora"});
  LoraOptions lora;
  lora.r = fields.integer("r", 1, kMostRank);
  lora.alpha = fields.number("alpha");
  lora.dropout = fields.number("dropout");
  lora.rslora = fields.boolean("use_rslora");
  lora.targets.clear();
  const auto& targets = fields.raw("target_modules");
  if (!targets.is_array())
    fields.fail("target_modules", "a list of linears", targets.dump().substr(0, 60));
  for (const auto& target : targets) {
    const std::string text = target.is_string() ? target.get<std::string>() : target.dump();
    try {
      lora.targets.push_back(parse_linear(text));
    } catch (const std::runtime_error& error) {
      fields.fail("target_modules", "known names", error.what());
    }
  }
  refuse(fields, problems(lora));
  return lora;
}

Json adapter_json(const BottleneckAdapterOptions& adapter) {
  return {{"size", adapter.size},
          {"placement", name(adapter.placement)},
          {"activation", name(adapter.activation)}};
}

BottleneckAdapterOptions read_adapter(const JsonFields& fields) {
  fields.allow_only({"size", "placement", "activation"});
  BottleneckAdapterOptions adapter;
  adapter.size = fields.integer("size", 1, kMostSize);
  adapter.placement = named(fields, "placement", parse_placement);
  adapter.activation = named(fields, "activation", parse_adapter_activation);
  return adapter;
}

// The three keys of a branch's bottleneck, which nothing else may have.
void read_bottleneck(const JsonFields& fields, DexOptions& options) {
  if (!options.has_projection() || options.projection != Projection::kBottleneck) {
    for (const char* key : {"bottleneck_scope", "bottleneck_activation", "width_ratio"}) {
      if (fields.has(key)) fields.fail(key, "no such key without projection bottleneck", "it");
    }
    return;
  }
  options.bottleneck_scope = named(fields, "bottleneck_scope", parse_bottleneck_scope);
  options.bottleneck_activation = named(fields, "bottleneck_activation", parse_activation);
  options.width_ratio = fields.number("width_ratio");
  if (options.width_ratio <= 0 || options.width_ratio > 16) {
    fields.fail("width_ratio", "a number above 0 and at most 16",
                std::to_string(options.width_ratio));
  }
}

DexOptions read_options(const JsonFields& fields) {
  DexOptions options;
  options.form = named(fields, "form", parse_form);
  options.train = named(fields, "train", parse_train);
  const bool stored_here = !options.publishes_model() && options.train != Train::kLora;
  if (!stored_here || options.has_branch() != parts_of(options.train).branch) {
    fields.fail("train",
                options.has_branch() ? "kvo+dex, dex_only or lora+dex with this form"
                                     : "kvo_only or adapter with form none",
                "\"" + fields.text("train") + "\"");
  }
  if (options.has_lora()) options.lora = read_lora(fields.object("lora"));
  if (options.has_adapter()) options.adapter = read_adapter(fields.object("adapter"));
  if (!options.has_branch()) return options;
  options.sign = named(fields, "sign", parse_sign);
  options.lambda = read_schedule(fields.object("lambda_schedule"));
  if (fields.has("soft_floor")) {
    options.soft_floor = fields.number("soft_floor");
    if (options.soft_floor < 0 || options.soft_floor > 0.5) {
      fields.fail("soft_floor", "a number in 0…0.5", std::to_string(options.soft_floor));
    }
  }
  if (options.has_projection()) {
    options.projection = named(fields, "projection", parse_projection);
  } else if (fields.has("projection")) {
    fields.fail("projection", "no such key with form " + std::string(name(options.form)), "it");
  }
  read_bottleneck(fields, options);
  return options;
}

// Layers below the first that is adapted have no branch that a head could have.
void require_heads_above(const JsonFields& fields, const Adapter& adapter) {
  const int64_t first = adapter.adaptation.options.first_layer;
  for (int64_t layer = 0; layer < first; ++layer) {
    if (adapter.selected_heads[static_cast<size_t>(layer)].empty()) continue;
    fields.fail("selected_heads", "no heads below first_layer " + std::to_string(first),
                "some in layer " + std::to_string(layer));
  }
}

std::vector<std::vector<int64_t>> read_heads(const JsonFields& fields, const Config& config) {
  const auto& json = fields.raw("selected_heads");
  const std::string expected =
      "a list of head numbers for each of " + std::to_string(config.layers) + " layers";
  if (!json.is_array() || static_cast<int64_t>(json.size()) != config.layers) {
    fields.fail(
        "selected_heads", expected,
        json.is_array() ? std::to_string(json.size()) + " lists" : json.dump().substr(0, 60));
  }
  std::vector<std::vector<int64_t>> heads;
  for (const auto& list : json) {
    if (!list.is_array()) fields.fail("selected_heads", expected, list.dump().substr(0, 60));
    auto& layer = heads.emplace_back();
    for (const auto& head : list) {
      if (!head.is_number_integer())
        fields.fail("selected_heads", expected, head.dump().substr(0, 60));
      layer.push_back(head.get<int64_t>());
    }
  }
  const auto problems = head_problems(config, heads);
  if (!problems.empty())
    fields.fail("selected_heads", "heads in range, each once", problems.front());
  return heads;
}

std::vector<double> read_lambda(const JsonFields& fields, const Config& config) {
  const auto& json = fields.raw("lambda");
  const std::string expected = std::to_string(config.layers) + " finite numbers, one a layer";
  if (!json.is_array() || static_cast<int64_t>(json.size()) != config.layers) {
    fields.fail(
        "lambda", expected,
        json.is_array() ? std::to_string(json.size()) + " values" : json.dump().substr(0, 60));
  }
  std::vector<double> values;
  for (const auto& value : json) {
    if (!value.is_number() || !std::isfinite(value.get<double>())) {
      fields.fail("lambda", expected, value.dump().substr(0, 60));
    }
    values.push_back(value.get<double>());
  }
  return values;
}

at::ScalarType read_dtype(const JsonFields& fields) {
  const std::string text = fields.text("dtype");
  if (text == "float32") return at::kFloat;
  if (text == "bfloat16") return at::kBFloat16;
  if (text == "float16") return at::kHalf;
  fields.fail("dtype", "float32, bfloat16 or float16", "\"" + text.substr(0, 60) + "\"");
}

}  // namespace

std::string adapter_config_json(const Adapter& adapter) {
  const DexOptions& options = adapter.adaptation.options;
  Json json = {
      {"peft_type", "DEX"},           {"base_model_name_or_path", adapter.base_model_name_or_path},
      {"revision", adapter.revision}, {"task_type", "CAUSAL_LM"},
      {"inference_mode", true},       {"dex_format_version", kFormatVersion},
      {"form", name(options.form)},   {"train", name(options.train)}};
  if (options.has_branch()) {
    if (options.has_projection()) json["projection"] = name(options.projection);
    json["sign"] = name(options.sign);
    json["lambda_schedule"] = schedule_json(options.lambda);
    if (options.has_projection() && options.projection == Projection::kBottleneck) {
      json["bottleneck_scope"] = name(options.bottleneck_scope);
      json["bottleneck_activation"] = name(options.bottleneck_activation);
      json["width_ratio"] = options.width_ratio;
    }
    if (options.soft_floor > 0) json["soft_floor"] = options.soft_floor;
  }
  if (options.first_layer > 0) json["first_layer"] = options.first_layer;
  if (options.has_lora()) json["lora"] = lora_json(options.lora);
  if (options.has_adapter()) json["adapter"] = adapter_json(options.adapter);
  json["selected_heads"] = adapter.selected_heads;
  json["lambda"] = adapter.lambda;  // shortest text that reads back as the same double
  json["dtype"] = adapter.dtype == at::kFloat  ? "float32"
                  : adapter.dtype == at::kHalf ? "float16"
                                               : "bfloat16";
  add_provenance(adapter, json);
  return json.dump(2) + "\n";
}

Adapter parse_adapter_config(std::string_view text, const Config& config,
                             const std::string& source) {
  const nlohmann::json json = parse_object(text, "adapter", source);
  const JsonFields fields(json, "adapter", source);
  fields.allow_only(kKeys);
  if (fields.text("peft_type") != "DEX")
    fields.fail("peft_type", "\"DEX\"", fields.text("peft_type"));
  if (fields.text("task_type") != "CAUSAL_LM")
    fields.fail("task_type", "\"CAUSAL_LM\"", fields.text("task_type"));
  fields.boolean("inference_mode");
  fields.integer("dex_format_version", kFormatVersion, kFormatVersion);

  Adapter adapter;
  adapter.adaptation.options = read_options(fields);
  // Absent in adapters of all layers, as in those from before there was this key.
  if (fields.has("first_layer"))
    adapter.adaptation.options.first_layer = fields.integer("first_layer", 0, config.layers - 1);
  adapter.selected_heads = read_heads(fields, config);
  require_heads_above(fields, adapter);
  adapter.lambda = read_lambda(fields, config);
  adapter.dtype = read_dtype(fields);
  adapter.base_model_name_or_path = fields.text("base_model_name_or_path");
  if (fields.has("revision")) adapter.revision = fields.text("revision");
  read_provenance(fields, adapter);
  return adapter;
}

}  // namespace dex::model
