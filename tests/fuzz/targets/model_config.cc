// JSON that decides a model's shape: config.json of a base, adapter_config.json of ours and of
// PEFT's.
#include "tests/fuzz/target.h"
#include "tests/support/content_of.h"
#include "tests/support/paths.h"
#include "worker/model/adapter_config.h"
#include "worker/model/config.h"
#include "worker/model/peft_config.h"

namespace dex::fuzz {

namespace {

namespace fs = std::filesystem;

// The base that the adapters of the seeds are for.
const model::Config& base() {
  static const model::Config config =
      model::load_config(support::source_dir() / "tests/data/train/model");
  return config;
}

// An adapter of ours as it is written.
std::string written(const model::DexOptions& options) {
  model::Adapter adapter;
  adapter.adaptation.options = options;
  adapter.selected_heads.resize(static_cast<size_t>(base().layers));
  if (options.has_branch()) adapter.selected_heads.back() = {0};
  adapter.lambda.resize(static_cast<size_t>(base().layers), 0.25);
  adapter.base_model_name_or_path = "tiny";
  adapter.base_weights_sha256 = adapter.tokenizer_sha256 = std::string(64, 'a');
  return model::adapter_config_json(adapter);
}

}  // namespace

Corpus corpus() {
  Corpus made;
  const fs::path data = support::source_dir() / "tests/data";
  for (const char* config :
       {"train/model/config.json", "model/families/llama3/config.json",
        "model/families/mistral_window/config.json", "model/families/diffllama/config.json",
        "model/families/qwen3/config.json", "lora/patterns/adapter_config.json",
        "lora/attention/adapter_config.json"})
    made.seeds.push_back(support::content_of(data / config));
  model::DexOptions options;
  made.seeds.push_back(written(options));
  options.projection = model::Projection::kBottleneck;
  options.lambda.schedule = model::Schedule::kConstant;
  made.seeds.push_back(written(options));
  options = {};
  options.form = model::Form::kNone;
  options.train = model::Train::kKvoOnly;
  made.seeds.push_back(written(options));
  // A shape whose number of parameters is beyond 64 bits.
  made.seeds.push_back(
      R"({"model_type": "llama", "hidden_act": "silu", "vocab_size": 4000000, "hidden_size": 1048576,
    "intermediate_size": 1048576, "num_hidden_layers": 4096, "num_attention_heads": 4096, "head_dim": 1048576,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000})");
  made.seeds.push_back(std::string(100'000, '[') + std::string(100'000, ']'));
  made.words = {"\"peft_type\"",
                "\"DEX\"",
                "\"LORA\"",
                "\"r\"",
                "\"rank_pattern\"",
                "\"layers_to_transform\"",
                "\"selected_heads\"",
                "\"lambda\"",
                "\"first_layer\"",
                "\"num_hidden_layers\"",
                "\"head_dim\"",
                "\"rope_scaling\"",
                "\"llama3\"",
                "\"layer_types\"",
                "\"eos_token_id\"",
                "\"differential_attention\"",
                "\"V2\"",
                "\"soft_floor\"",
                "\"kvo+dex\"",
                "\"dex_only\"",
                "\"lora+dex\"",
                "\"adapter\""};
  return made;
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  const std::string_view text = view(data, size);
  parse([&] {
    const auto config = dex::model::parse_config(text, "config.json");
    require(config.heads % config.kv_heads == 0 && config.layers > 0, "a shape that can be built");
    (void)config.parameter_count();
  });
  parse([&] { (void)dex::model::is_peft_lora(text, "adapter_config.json"); });
  parse([&] { (void)dex::model::parse_peft_config(text, base(), "adapter_config.json"); });
  parse([&] {
    const auto adapter = dex::model::parse_adapter_config(text, base(), "adapter_config.json");
    const auto layers = static_cast<size_t>(base().layers);
    require(adapter.selected_heads.size() == layers && adapter.lambda.size() == layers,
            "a list of heads and a λ for each layer");
    (void)dex::model::adapter_config_json(adapter);  // what was read can be written
  });
  return 0;
}
