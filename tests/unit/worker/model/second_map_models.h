#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/unit/worker/model/family_models.h"
#include "worker/model/second_map.h"
#include "worker/model/weights.h"

// Models of families with a second map whose every tensor is its own: as method diff leaves them.
namespace dex::testing {

struct SecondMapCase {
  std::string family;
  model::SecondMapOptions::Version version;

  [[nodiscard]] std::string name() const {
    return family + "_" + std::string(model::name(version));
  }
};

// Grouped keys, RoPE scaling, a window, biases, norms of heads.
inline std::vector<SecondMapCase> second_map_cases() {
  using enum model::SecondMapOptions::Version;
  std::vector<SecondMapCase> cases;
  for (const char* family : {"llama3", "mistral_window", "qwen2", "qwen3_biased"}) {
    for (const auto version : {kV1, kV2}) cases.push_back({family, version});
  }
  return cases;
}

struct SecondMapModel {
  model::Config config;
  model::Weights weights;
};

// Every tensor of self_attn moved by its own numbers, so that no two heads are alike.
inline SecondMapModel second_map_model(const std::filesystem::path& base,
                                       const SecondMapCase& which) {
  const model::Config config = model::load_config(base);
  const model::SecondMapOptions options{which.version, model::SecondMapOptions::Init::kMirror};
  SecondMapModel out{
      model::with_second_map(config, which.version),
      model::add_second_map(model::load_weights(base, config, {at::kFloat}), config, options, 3)};
  uint64_t place = 4000;
  for (model::LayerWeights& layer : out.weights.layers) {
    for (const auto& [name, tensor] : model::layer_places(layer)) {
      if (tensor->defined() && name.starts_with("self_attn."))
        *tensor = *tensor + family_numbers(++place, tensor->sizes(), 0, 0.2);
    }
  }
  return out;
}

// As a folder, like the artefact of a job.
inline void write_second_map(const std::filesystem::path& base, const std::filesystem::path& out,
                             const SecondMapCase& which, const SecondMapModel& made) {
  std::filesystem::create_directories(out);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(base / "config.json"));
  config[model::kSecondMapKey] = {{"version", model::name(which.version)}};
  std::ofstream(out / "config.json") << config;
  model::write_safetensors(out / "model.safetensors", model::named_weights(made.weights));
}

}  // namespace dex::testing
