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

}  // namespace

std::string convert_unilm(const std::filesystem::path& source, const std::filesystem::path& out) {
  const at::NoGradGuard no_grad;
  const Config config = load_config(source);
  check_is_sayable(config);
  const Weights weights = load_weights(
      source, config, {.dtype = at::kFloat, .refuse_non_finite = true, .unilm_attention = true});
  const at::ScalarType stored = WeightFiles::open(source).info("model.embed_tokens.weight").dtype;
  const std::string hash = base_weights_sha256(source);
  const nlohmann::ordered_json origin = {{"attention", "microsoft/unilm Diff-Transformer V1"},
                                         {"weights_sha256", hash}};
  export_converted(out, source, weights, stored, origin.dump(2) + "\n");
  const nlohmann::ordered_json report = {
      {"folder", out.string()}, {"dtype", torch_name(stored)}, {"weights_sha256", hash}};
  return report.dump();
}

}  // namespace dex::model
