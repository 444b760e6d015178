#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "worker/kernels/philox.h"
#include "worker/model/adaptation.h"
#include "worker/model/safetensors.h"

// The small random models of tests/data/model/families: make_families.py says what the golden files
// hold and by which rule both sides make the weights.
namespace dex::testing {

inline const std::vector<std::string>& family_names() {
  static const std::vector<std::string> names = {
      "llama3", "llama_linear", "mistral", "mistral_window", "qwen2", "qwen3", "qwen3_biased"};
  return names;
}

inline std::filesystem::path family_data(const std::string& family) {
  return support::source_dir() / "tests/data/model/families" / family;
}

inline model::Safetensors family_golden(const std::string& family) {
  return model::Safetensors::open(family_data(family) / "golden.safetensors",
                                  model::Safetensors::Access::kRead);
}

inline at::Tensor family_numbers(uint64_t place, at::IntArrayRef shape, double centre,
                                 double scale) {
  at::Tensor out = at::empty(shape, at::kFloat);
  auto* values = out.mutable_data_ptr<float>();
  for (int64_t j = 0; j < out.numel(); ++j) {
    const double u = kernels::random_unit(21, place, static_cast<uint64_t>(j));
    values[j] = static_cast<float>(centre + scale * (2 * u - 1));
  }
  return out;
}

// Every tensor that transformers has for this model, by its name and shape there.
inline model::NamedTensors family_tensors(const model::Safetensors& golden) {
  model::NamedTensors tensors;
  for (const auto& entry : nlohmann::json::parse(golden.metadata().at("names"))) {
    const auto name = entry[0].get<std::string>();
    const auto shape = entry[1].get<std::vector<int64_t>>();
    const bool norm = name.find("norm") != std::string::npos,
               embedding = name.find("embed") != std::string::npos;
    tensors.emplace_back(
        name, family_numbers(tensors.size(), shape, norm ? 1.0 : 0.0, embedding ? 1.0 : 0.3));
  }
  return tensors;
}

// A Hugging Face folder of it, without a tokenizer; more than one shard comes with an index.
inline void write_family(const std::filesystem::path& folder, const std::string& family,
                         const model::NamedTensors& tensors, size_t shards = 1) {
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(family_data(family) / "config.json", folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  if (shards == 1) return model::write_safetensors(folder / "model.safetensors", tensors);
  nlohmann::json files;
  for (size_t shard = 0; shard < shards; ++shard) {
    const std::string file = "model-" + std::to_string(shard + 1) + ".safetensors";
    model::NamedTensors part;
    for (size_t i = shard; i < tensors.size(); i += shards) {
      part.push_back(tensors[i]);
      files[tensors[i].first] = file;
    }
    model::write_safetensors(folder / file, part);
  }
  std::ofstream(folder / "model.safetensors.index.json")
      << nlohmann::json{{"metadata", {{"total_size", 0}}}, {"weight_map", files}};
}

// The branch of the golden values, in the paper's form with a learned λ; k, v, o are the base's.
inline model::Adaptation family_branch(const model::Safetensors& golden,
                                       const model::Config& config, const model::Weights& base) {
  std::vector<std::vector<int64_t>> heads(static_cast<size_t>(config.layers));
  for (size_t layer = 0; layer < heads.size(); ++layer) {
    const at::Tensor mask = golden.tensor("dex." + std::to_string(layer) + ".mask");
    for (int64_t head = 0; head < config.heads; ++head) {
      if (mask[head].item<float>() == 1) heads[layer].push_back(head);
    }
  }
  model::DexOptions options;
  options.lambda.schedule = model::Schedule::kLearned;
  model::Adaptation adaptation = initial_adaptation(options, config, base, heads, 1);
  for (size_t layer = 0; layer < heads.size(); ++layer) {
    model::BranchTensors& branch = adaptation.layers[layer].branch;
    branch.w_d = family_numbers(1000 + layer, {config.head_dim, config.head_dim}, 0, 0.4);
    branch.lambda_learn = at::full({1}, 0.37F);
  }
  return adaptation;
}

}  // namespace dex::testing
