#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "dex/v1/models.pb.h"
#include "scheduler/core/presets.h"

namespace dex::core {

// Every method of api.md §3 that a job may ask for, by its name in JSON and replies.
const std::vector<std::string_view>& method_names();

// The linears that LoRA may change, in a checkpoint's order: q_proj … down_proj.
const std::vector<std::string_view>& linear_names();

// What is trained of the base's own weights, and what beside them.
enum class TrainedWeights { kNone, kKvo, kAttention, kAll };
TrainedWeights trained_weights(const dex::v1::FineTuningJobSpec& spec);
// LoRA's options, of the method or of dex with train LORA_DEX; null: none.
const dex::v1::LoraMethod* lora_of(const dex::v1::FineTuningJobSpec& spec);

// Whether what is published is a whole model, class MODEL, rather than an adapter.
bool publishes_model(const dex::v1::FineTuningJobSpec& spec);

// LIGHT, KVO or MODEL (api.md §3) of a resolved spec. A map over all heads together is KVO: it is
// as large as the projections.
std::string artifact_class(const dex::v1::FineTuningJobSpec& spec, const dex::v1::Model& model);

// The values that belong to the spec's method itself (method.md §7), whatever the preset: LoRA's
// and the adapter's options, and the learning rate where a preset's, made for W_K, W_V and W_O,
// would be wrong.
dex::v1::FineTuningJobSpec method_defaults(const dex::v1::FineTuningJobSpec& spec, SizeClass size);

}  // namespace dex::core
