#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/unit/worker/train/tiny_model.h"
#include "worker/model/adaptation.h"
#include "worker/model/adapter.h"

// Adapters of the tiny model, far from their start, so that each changes what it says.
namespace dex::serve::testing {

// Where some of the following are in their list.
inline constexpr int kPaper = 0, kDexOnly = 1, kHeadMean = 2, kPrefixMean = 4, kUniformMap = 5,
                     kSilu = 6, kDexOnlyGelu = 7, kAttentionLora = 10, kBottleneckAdapter = 11,
                     kLoraPaper = 13, kLoraPrefix = 14, kAllLora = 16;

inline std::vector<model::DexOptions> tiny_options() {
  model::DexOptions paper;
  paper.lambda.schedule = model::Schedule::kConstant;
  paper.lambda.value = 0.4;
  model::DexOptions only = paper;
  only.train = model::Train::kDexOnly;
  model::DexOptions mean = paper;
  mean.form = model::Form::kHeadMean;
  mean.projection = model::Projection::kPerHead;
  mean.sign = model::Sign::kPlus;
  model::DexOptions bottleneck = mean;
  bottleneck.projection = model::Projection::kBottleneck;
  // What can't be folded: two forms that carry sums, and activated bottlenecks.
  model::DexOptions prefix = mean;
  prefix.form = model::Form::kPrefixMean;
  model::DexOptions uniform = paper;
  uniform.form = model::Form::kUniformMap;
  model::DexOptions silu = bottleneck;
  silu.bottleneck_activation = model::Activation::kSilu;
  model::DexOptions gelu = prefix;
  gelu.train = model::Train::kDexOnly;
  gelu.projection = model::Projection::kBottleneck;
  gelu.bottleneck_scope = model::BottleneckScope::kDense;
  gelu.bottleneck_activation = model::Activation::kGelu;
  model::DexOptions dense = prefix;
  dense.projection = model::Projection::kDense;
  dense.soft_floor = 0.25;
  model::DexOptions shared = silu;
  shared.form = model::Form::kPaper;
  shared.bottleneck_scope = model::BottleneckScope::kShared;
  // The baselines, and LoRA beside a branch that folds and beside two that don't: a term of W_O
  // reads O' in each.
  model::DexOptions lora;
  lora.form = model::Form::kNone;
  lora.train = model::Train::kLora;
  lora.lora = {.r = 3, .alpha = 4, .targets = {model::kLinears.begin(), model::kLinears.end()}};
  model::DexOptions attention_lora = lora;
  attention_lora.lora = {.r = 5, .alpha = 5};
  model::DexOptions adapter;
  adapter.form = model::Form::kNone;
  adapter.train = model::Train::kAdapter;
  adapter.adapter = {.size = 6, .activation = model::AdapterActivation::kGelu};
  model::DexOptions after_mlp = adapter;
  after_mlp.adapter = {.size = 20, .placement = model::Placement::kMlp};
  model::DexOptions lora_paper = paper, lora_prefix = prefix, lora_silu = silu;
  for (auto* options : {&lora_paper, &lora_prefix, &lora_silu})
    options->train = model::Train::kLoraDex;
  // Nothing below layer 1, nor a floor: folded, and as a branch.
  model::DexOptions upper = paper, upper_prefix = prefix;
  upper.first_layer = upper_prefix.first_layer = 1;
  upper_prefix.soft_floor = 0.25;
  return {paper,       only,      mean,   bottleneck,     prefix,      uniform,   silu,
          gelu,        dense,     shared, attention_lora, adapter,     after_mlp, lora_paper,
          lora_prefix, lora_silu, lora,   upper,          upper_prefix};
}

inline model::Adapter tiny_adapter(const model::DexOptions& options, uint64_t stream,
                                   const std::string& base_sha256, double scale = 0.4) {
  const model::Config config = train::testing::tiny_config();
  const model::Weights weights = train::testing::tiny_weights(config);
  model::Adaptation adaptation =
      model::initial_adaptation(options, config, weights, {{0, 3}, {1, 2}}, stream);
  for (const model::Trainable& entry : model::trainables(adaptation)) {
    entry.tensor->add_(train::testing::random_tensor(entry.tensor->sizes(), ++stream, scale));
  }
  model::set_lambda(adaptation, 10);
  model::Adapter adapter = model::make_adapter(adaptation);
  adapter.base_model_name_or_path = "tiny";
  adapter.base_weights_sha256 = base_sha256;
  return adapter;
}

}  // namespace dex::serve::testing
