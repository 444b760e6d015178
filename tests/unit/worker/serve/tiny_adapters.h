#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/unit/worker/train/tiny_model.h"
#include "worker/model/adaptation.h"
#include "worker/model/adapter.h"

// Adapters of the tiny model, far from their start, so that each changes what it says.
namespace dex::serve::testing {

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
  model::DexOptions lora_dex = paper;
  lora_dex.train = model::Train::kLoraDex;
  return {paper, only, mean, bottleneck, lora, attention_lora, adapter, after_mlp, lora_dex};
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
