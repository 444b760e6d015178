#include "scheduler/core/model_limits.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/spec_values.h"
#include "scheduler/core/estimate.h"
#include "scheduler/core/methods.h"
#include "scheduler/core/resolve.h"
#include "services/base/serving_limits.h"

namespace dex::core {

namespace {

using dex::v1::DexMethod;
using dex::v1::FineTuningJobSpec;
using dex::v1::ModelLimits;

// As JSON and artefacts write them (api.md §3).
constexpr std::array<std::pair<std::string_view, DexMethod::Train>, 4> kTrains = {
    {{"kvo+dex", DexMethod::TRAIN_KVO_DEX},
     {"dex_only", DexMethod::TRAIN_DEX_ONLY},
     {"lora+dex", DexMethod::TRAIN_LORA_DEX},
     {"full+dex", DexMethod::TRAIN_FULL_DEX}}};

constexpr std::string_view kHyper = "hyperparameters.";

bool applies(std::string_view path, std::string_view method) {
  if (path.starts_with(kHyper)) {
    const std::string_view name = path.substr(kHyper.size());
    if (name == "branch_learning_rate" || name == "lambda_learning_rate") return method == "dex";
    if (name == "first_layer") return method != "full" && method != "diff";
    return true;
  }
  return path.size() > method.size() && path.starts_with(method) && path[method.size()] == '.';
}

void add_ranges(const dex::v1::Model& model, const std::string& method, ModelLimits& limits) {
  for (const proto::Limits& limit : proto::all_limits()) {
    if (!applies(limit.path, method)) continue;
    ModelLimits::Range& range = *limits.add_ranges();
    range.set_field(std::string(limit.path));
    range.set_minimum(limit.low);
    range.set_maximum(limit.high);
    range.set_above_minimum(limit.above_low);
    // Where the model is narrower (check_spec.cc).
    if (limit.path == "hyperparameters.max_seq_length")
      range.set_maximum(std::min<double>(limit.high, model.context_length()));
    if (limit.path == "hyperparameters.first_layer") range.set_maximum(model.layers() - 1);
  }
}

// The smallest job of this method: what is counted does not depend on its rows.
ResolveInput smallest_job(const dex::v1::Model& model, const std::string& method,
                          std::optional<DexMethod::Train> train) {
  ResolveInput input;
  FineTuningJobSpec& spec = input.spec;
  spec.set_model(model.name());
  spec.set_training_file("file-");
  const auto* field = FineTuningJobSpec::descriptor()->FindFieldByName(method);
  spec.GetReflection()->MutableMessage(&spec, field);  // chooses it
  if (train) {
    spec.mutable_dex()->set_train(*train);
    spec.mutable_dex()->set_allow_large_projection(true);
  }
  auto& hyper = *spec.mutable_hyperparameters();
  hyper.set_batch_size(1);
  hyper.set_micro_batch_size(1);
  hyper.set_max_seq_length(
      static_cast<uint32_t>(proto::limits_of("hyperparameters.max_seq_length")->low));
  hyper.set_max_steps(100);
  input.model = model;
  input.training = {dex::v1::FILE_FORMAT_TEXT, 1000, 100'000, 1000};
  return input;
}

base::Status add_artifact(const dex::v1::Model& model, const std::string& method,
                          std::string_view train, std::optional<DexMethod::Train> choice,
                          ModelLimits& limits) {
  DEX_ASSIGN_OR_RETURN(const Resolved resolved, resolve(smallest_job(model, method, choice)));
  const dex::v1::Estimate counted = estimate(resolved, model, {});
  ModelLimits::Artifact& artifact = *limits.add_artifacts();
  artifact.set_train(std::string(train));
  artifact.set_artifact_class(counted.artifact_class());
  artifact.set_artifact_bytes(counted.artifact_bytes());
  artifact.set_trained_parameters(counted.trained_parameters());
  artifact.set_least_memory_bytes(counted.peak_host_memory_bytes());
  if (counted.artifact_class() != "MODEL" && counted.artifact_bytes() > 0)
    artifact.set_adapters_served(base::kAdapterBytes / counted.artifact_bytes());
  return {};
}

}  // namespace

base::Result<ModelLimits> model_limits(const dex::v1::Model& model, const std::string& method) {
  const std::string name = method.empty() ? "dex" : method;
  const auto& known = method_names();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    std::string names;
    for (const auto one : known) names += (names.empty() ? "" : ", ") + std::string(one);
    return base::invalid_field("method",
                               "must be one of " + names + ", got '" + name.substr(0, 64) + "'");
  }
  ModelLimits limits;
  limits.set_model(model.name());
  limits.set_method(name);
  add_ranges(model, name, limits);
  if (name != "dex") {
    DEX_RETURN_IF_ERROR(add_artifact(model, name, "", std::nullopt, limits));
    return limits;
  }
  for (const auto& [train, choice] : kTrains)
    DEX_RETURN_IF_ERROR(add_artifact(model, name, train, choice, limits));
  return limits;
}

void add_pool(const std::string& name, int64_t memory_bytes, ModelLimits& limits) {
  ModelLimits::Pool& pool = *limits.add_pools();
  pool.set_name(name);
  pool.set_memory_bytes(memory_bytes);
  for (const auto& artifact : limits.artifacts()) {
    if (memory_bytes > 0 && artifact.least_memory_bytes() > memory_bytes) continue;
    pool.add_fits(artifact.train().empty() ? limits.method() : artifact.train());
  }
}

}  // namespace dex::core
