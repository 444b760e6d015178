#include "worker/train/warm_start.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "services/base/lambda_schedule.h"
#include "services/base/sha256.h"
#include "worker/train/failure.h"
#include "worker/train/number_text.h"

namespace dex::train {
namespace {

using model::DexOptions;

struct Option {
  std::string field, asked, found;
};

std::string targets_text(const model::LoraOptions& lora) {
  std::string text;
  for (const model::Linear linear : model::kLinears) {
    if (std::find(lora.targets.begin(), lora.targets.end(), linear) != lora.targets.end())
      text += (text.empty() ? "" : " ") + std::string(model::name(linear));
  }
  return text;
}

// What makes an adapter what it is, of both sides; a part that neither has is left out.
std::vector<Option> options_of(const DexOptions& asked, const DexOptions& found) {
  const auto text = [](const auto& value) { return std::string(model::name(value)); };
  std::vector<Option> list = {{"train", text(asked.train), text(found.train)},
                              {"form", text(asked.form), text(found.form)},
                              {"hyperparameters.first_layer", std::to_string(asked.first_layer),
                               std::to_string(found.first_layer)}};
  if (asked.has_branch()) {
    list.push_back({"sign", text(asked.sign), text(found.sign)});
    list.push_back(
        {"soft_floor", std::to_string(asked.soft_floor), std::to_string(found.soft_floor)});
  }
  if (asked.has_projection())
    list.push_back({"projection", text(asked.projection), text(found.projection)});
  if (asked.has_projection() && asked.projection == model::Projection::kBottleneck) {
    list.push_back(
        {"bottleneck.scope", text(asked.bottleneck_scope), text(found.bottleneck_scope)});
    list.push_back({"bottleneck.activation", text(asked.bottleneck_activation),
                    text(found.bottleneck_activation)});
    list.push_back({"bottleneck.width_ratio", std::to_string(asked.width_ratio),
                    std::to_string(found.width_ratio)});
  }
  if (asked.has_lora()) {
    list.push_back({"lora.r", std::to_string(asked.lora.r), std::to_string(found.lora.r)});
    list.push_back(
        {"lora.alpha", std::to_string(asked.lora.alpha), std::to_string(found.lora.alpha)});
    list.push_back(
        {"lora.use_rslora", std::to_string(asked.lora.rslora), std::to_string(found.lora.rslora)});
    list.push_back({"lora.target_modules", targets_text(asked.lora), targets_text(found.lora)});
  }
  if (asked.has_adapter()) {
    list.push_back(
        {"adapter.size", std::to_string(asked.adapter.size), std::to_string(found.adapter.size)});
    list.push_back(
        {"adapter.placement", text(asked.adapter.placement), text(found.adapter.placement)});
    list.push_back(
        {"adapter.activation", text(asked.adapter.activation), text(found.adapter.activation)});
  }
  return list;
}

Failure mismatch(const JobSpec& spec, const std::string& what) {
  return {Exit::kBadSpec, "adapter_mismatch",
          "the job can't go on from " + spec.start_adapter + ": " + what, "model"};
}

// A λ that is not learned must be the one that the adapter acts with.
void check_lambda(const JobSpec& spec, const model::Adapter& adapter) {
  const auto& lambda = spec.dex.lambda;
  if (lambda.schedule == model::Schedule::kLearned) return;
  if (lambda.schedule != model::Schedule::kConstant) {
    throw mismatch(spec, "lambda.schedule is " + std::string(model::name(lambda.schedule)) +
                             ", which begins elsewhere than the adapter's λ; give learned or "
                             "constant");
  }
  for (size_t l = 0; l < adapter.lambda.size(); ++l) {
    const double value = adapter.lambda[l];
    if (static_cast<int64_t>(l) < spec.dex.first_layer) continue;  // there is none
    if (std::abs(value - lambda.value) <= 1e-6 * std::max(1.0, std::abs(value))) continue;
    throw mismatch(spec, "lambda.value is " + number_text(lambda.value) + ", the adapter's λ " +
                             number_text(value));
  }
  const std::string dead =
      base::dead_point(lambda, {.zero_difference = false, .goes_on = true}, /*updates=*/1);
  if (!dead.empty()) throw mismatch(spec, dead);
}

}  // namespace

model::Adapter load_start(const JobSpec& spec, const model::Config& config,
                          const std::string& base_weights_sha256) {
  if (spec.dex.has_second_map()) {
    throw mismatch(spec, "method diff begins from a base model, to which it adds a second map");
  }
  // kBadSpec, for kBrokenInput says that this worker is at fault: it would go out of service, and
  // every other one after it.
  const auto broken = [&](const std::string& what) {
    return Failure(Exit::kBadSpec, "adapter_mismatch",
                   "the adapter to go on from, " + spec.start_adapter + ": " + what, "model");
  };
  if (!spec.start_adapter_sha256.empty()) {
    const auto hash = base::sha256_file(spec.start_adapter_dir / model::kChecksumFile);
    if (!hash.ok()) throw broken(hash.status().message());
    if (*hash != spec.start_adapter_sha256) {
      throw broken("checksums.json has SHA-256 " + *hash + ", expected " +
                   spec.start_adapter_sha256);
    }
  }
  model::Adapter adapter;
  try {
    adapter = model::load_adapter(spec.start_adapter_dir, {config, base_weights_sha256});
  } catch (const std::runtime_error& error) {
    throw broken(error.what());
  }
  for (const Option& option : options_of(spec.dex, adapter.adaptation.options)) {
    if (option.asked != option.found)
      throw mismatch(spec,
                     option.field + " is " + option.asked + ", the adapter's is " + option.found);
  }
  if (spec.dex.has_branch()) check_lambda(spec, adapter);
  return adapter;
}

void take_values(const model::Adapter& from, model::Adaptation& to) {
  model::Adaptation source = from.adaptation;  // tensors are shared; the list is of places
  const auto values = model::trainables(source), places = model::trainables(to);
  if (values.size() != places.size()) {
    throw std::runtime_error("[take_values] the adapter has " + std::to_string(values.size()) +
                             " tensors, expected " + std::to_string(places.size()));
  }
  for (size_t i = 0; i < places.size(); ++i) {
    if (values[i].name != places[i].name ||
        values[i].tensor->sizes() != places[i].tensor->sizes()) {
      throw std::runtime_error("[take_values] " + places[i].name + " is not as in the adapter, " +
                               values[i].name);
    }
    places[i].tensor->copy_(*values[i].tensor);
  }
  for (size_t l = 0; l < to.layers.size(); ++l) {
    at::Tensor& learned = to.layers[l].branch.lambda_learn;
    if (learned.defined()) learned.fill_(from.lambda.at(l));
  }
}

}  // namespace dex::train
