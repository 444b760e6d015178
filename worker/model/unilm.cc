#include "worker/model/unilm.h"

#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "worker/model/fold.h"
#include "worker/model/safetensors.h"
#include "worker/model/weights.h"

namespace dex::model {

namespace {

constexpr double kHeadNormEps = 1e-5;  // of unilm's subln; DiffLlama's is that of all its norms

void check_is_sayable(const Config& config) {
  const auto refuse = [](const std::string& what) {
    throw std::runtime_error("[convert] config.json: " + what);
  };
  if (config.attention != Attention::kDiffLlama) {
    refuse(
        "expected that of the diffllama to be made, with unilm's sub-heads as its heads, found " +
        config.kind());
  }
  if (config.qkv_bias || config.o_bias)
    refuse("key \"attention_bias\", expected false, since unilm's attention has none, found true");
  if (config.rms_norm_eps != kHeadNormEps) {
    refuse(
        "key \"rms_norm_eps\", expected 1e-05, which unilm's head norm has and a diffllama has for "
        "all of its norms, found " +
        nlohmann::json(config.rms_norm_eps).dump());
  }
}

// Weights were computed in fp32. Each is written in the type that it was stored in, which need not
// be one for all: norms and λ are often kept wider.
void to_stored_types(const WeightFiles& files, Weights& weights) {
  const auto back = [&files](const std::string& name, at::Tensor& tensor) {
    if (tensor.defined()) tensor = tensor.to(files.info(name).dtype);
  };
  const bool tied = weights.lm_head.is_same(weights.embed);
  back("model.embed_tokens.weight", weights.embed);
  back("model.norm.weight", weights.norm);
  if (tied) {
    weights.lm_head = weights.embed;
  } else {
    back("lm_head.weight", weights.lm_head);
  }
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    for (const auto& [name, tensor] : layer_places(weights.layers[i])) {
      const bool output = name == "self_attn.o_proj.weight";
      back(
          "model.layers." + std::to_string(i) + "." + (output ? "self_attn.out_proj.weight" : name),
          *tensor);
    }
  }
}

}  // namespace

std::string convert_unilm(const std::filesystem::path& source, const std::filesystem::path& out) {
  const at::NoGradGuard no_grad;
  const Config config = load_config(source);
  check_is_sayable(config);
  Weights weights = load_weights(
      source, config, {.dtype = at::kFloat, .refuse_non_finite = true, .unilm_attention = true});
  const WeightFiles files = WeightFiles::open(source);
  const at::ScalarType stored =
      files.info("model.embed_tokens.weight").dtype;  // config.json has one
  to_stored_types(files, weights);
  const std::string hash = base_weights_sha256(source);
  const nlohmann::ordered_json origin = {{"attention", "microsoft/unilm Diff-Transformer V1"},
                                         {"weights_sha256", hash}};
  export_converted(out, source, weights, stored, origin.dump(2) + "\n");
  const nlohmann::ordered_json report = {
      {"folder", out.string()}, {"dtype", torch_name(stored)}, {"weights_sha256", hash}};
  return report.dump();
}

}  // namespace dex::model
