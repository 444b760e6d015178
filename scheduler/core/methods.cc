#include "scheduler/core/methods.h"

#include <initializer_list>

#include "scheduler/core/dex_shape.h"
#include "services/base/method_constants.h"

namespace dex::core {

namespace {

using dex::v1::AdapterMethod;
using dex::v1::DexMethod;
using dex::v1::DiffMethod;
using dex::v1::FineTuningJobSpec;
using dex::v1::LoraMethod;

void set_lora_defaults(std::initializer_list<const char*> targets, LoraMethod& lora) {
  lora.set_r(8);
  lora.set_alpha(16);
  lora.set_dropout(0);
  lora.set_use_rslora(false);
  for (const char* target : targets) lora.add_target_modules(target);
}

}  // namespace

const std::vector<std::string_view>& method_names() {
  static const std::vector<std::string_view> names = {"dex",     "kvo_only", "lora",
                                                      "adapter", "full",     "diff"};
  return names;
}

const std::vector<std::string_view>& linear_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> out;
    for (const std::string_view path : base::kLinearPaths) out.push_back(base::linear_name(path));
    return out;
  }();
  return names;
}

TrainedWeights trained_weights(const FineTuningJobSpec& spec) {
  switch (spec.method_case()) {
    case FineTuningJobSpec::kKvoOnly:
      return TrainedWeights::kKvo;
    case FineTuningJobSpec::kFull:
      return TrainedWeights::kAll;
    case FineTuningJobSpec::kDiff:
      return spec.diff().train() == DiffMethod::TRAIN_ALL ? TrainedWeights::kAll
                                                          : TrainedWeights::kAttention;
    case FineTuningJobSpec::kLora:
    case FineTuningJobSpec::kAdapter:
      return TrainedWeights::kNone;
    default:
      break;
  }
  switch (spec.dex().train()) {
    case DexMethod::TRAIN_DEX_ONLY:
    case DexMethod::TRAIN_LORA_DEX:
      return TrainedWeights::kNone;
    case DexMethod::TRAIN_FULL_DEX:
      return TrainedWeights::kAll;
    default:
      return TrainedWeights::kKvo;
  }
}

const LoraMethod* lora_of(const FineTuningJobSpec& spec) {
  if (spec.has_lora()) return &spec.lora();
  return spec.dex().train() == DexMethod::TRAIN_LORA_DEX ? &spec.dex().lora() : nullptr;
}

bool publishes_model(const FineTuningJobSpec& spec) {
  const TrainedWeights weights = trained_weights(spec);
  // Attention as a whole is trained by method diff alone: a second map is no adapter.
  return weights == TrainedWeights::kAll || weights == TrainedWeights::kAttention;
}

std::string artifact_class(const FineTuningJobSpec& spec, const dex::v1::Model& model) {
  switch (trained_weights(spec)) {
    case TrainedWeights::kAll:
    case TrainedWeights::kAttention:
      return "MODEL";
    case TrainedWeights::kKvo:
      return "KVO";
    case TrainedWeights::kNone:
      break;
  }
  return spec.has_dex() && projected_width(spec.dex(), model) != model.head_dim() ? "KVO" : "LIGHT";
}

FineTuningJobSpec method_defaults(const FineTuningJobSpec& spec, SizeClass size) {
  FineTuningJobSpec out;
  if (spec.has_lora()) {
    set_lora_defaults({"q_proj", "k_proj", "v_proj", "o_proj"}, *out.mutable_lora());
  } else if (lora_of(spec)) {
    set_lora_defaults({"k_proj", "v_proj", "o_proj"}, *out.mutable_dex()->mutable_lora());
  }
  if (lora_of(spec)) out.mutable_hyperparameters()->set_learning_rate(2e-4);
  if (spec.has_adapter()) {
    AdapterMethod& adapter = *out.mutable_adapter();
    adapter.set_size(64);
    adapter.set_placement(AdapterMethod::PLACEMENT_BOTH);
    adapter.set_activation(AdapterMethod::ACTIVATION_RELU);
    out.mutable_hyperparameters()->set_learning_rate(1e-4);
  }
  if (spec.has_diff()) {
    DiffMethod& diff = *out.mutable_diff();
    diff.set_version(DiffMethod::VERSION_V2);
    diff.set_mix_in_ratio(0.3);
    diff.set_train(DiffMethod::TRAIN_ATTENTION);
    out.mutable_hyperparameters()->set_learning_rate(1e-4);
  }
  if (trained_weights(spec) == TrainedWeights::kAll)
    out.mutable_hyperparameters()->set_learning_rate(size == SizeClass::kSmall ? 2e-5 : 1e-5);
  return out;
}

}  // namespace dex::core
