#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "tests/unit/worker/model/family_models.h"
#include "worker/model/config.h"
#include "worker/model/differential_attention.h"
#include "worker/model/safetensors.h"
#include "worker/model/weights.h"

namespace dex::testing {

// A DiffLlama's folder `from` as microsoft/unilm's modules would keep the model, in `folder`: their
// layout and names in self_attn, and a gain from 0.5 to 2 behind each head norm that W_O then
// lacks.
inline void write_unilm(const std::filesystem::path& from, const std::filesystem::path& folder,
                        at::ScalarType type = at::kFloat) {
  const model::Config config = model::load_config(from);
  model::Weights weights = model::load_weights(from, config, {.dtype = at::kFloat});
  model::NamedTensors tensors;
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    model::LayerWeights& layer = weights.layers[i];
    const int64_t pairs = config.heads / 2;
    const at::Tensor gain = family_numbers(5000 + i, {2 * config.head_dim}, 1.25, 0.75);
    const model::DifferentialProjections unilm =
        model::to_unilm({layer.q, layer.k, layer.v, layer.o}, pairs, config.kv_heads / 2);
    layer.q = unilm.q;
    layer.k = unilm.k;
    layer.v = unilm.v;
    layer.o = unilm.o / gain.repeat({pairs});
    tensors.emplace_back("model.layers." + std::to_string(i) + ".self_attn.subln.weight",
                         gain.to(type));
  }
  for (const auto& [name, tensor] : model::named_weights(weights)) {
    constexpr std::string_view kOutput = "o_proj.weight";
    const bool output = name.ends_with(kOutput);
    tensors.emplace_back(
        output ? name.substr(0, name.size() - kOutput.size()) + "out_proj.weight" : name,
        tensor.to(type).contiguous());
  }
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(from / "config.json", folder / "config.json");
  model::write_safetensors(folder / "model.safetensors", tensors);
}

}  // namespace dex::testing
