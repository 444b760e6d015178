#include "tests/integration/golden_model/random_adapter.h"

#include <ATen/ops/from_blob.h>

#include <array>

namespace dex::golden {
namespace {

using at::Tensor;
using nlohmann::json;

// A tensor's number is 8·layer + its place here (`tensors` of the rule).
enum Place : uint32_t { kWd, kK, kV, kO, kGate };

Tensor numbers(int64_t layer, Place place, at::IntArrayRef shape, double scale) {
  auto values = uniform(static_cast<uint32_t>(8 * layer) + place, c10::multiply_integers(shape));
  return at::from_blob(values.data(), shape, at::kFloat).clone().mul_(static_cast<float>(scale));
}

// base·(1 + scale·u), element by element in fp32.
Tensor changed(const Tensor& weight, int64_t layer, Place place, double scale) {
  return numbers(layer, place, weight.sizes(), scale).add_(1.0F).mul_(weight);
}

model::DexOptions options_of(const json& adapter_case) {
  model::DexOptions options;
  options.form = model::parse_form(adapter_case["form"].get<std::string>());
  options.projection = model::parse_projection(adapter_case["projection"].get<std::string>());
  options.sign = model::parse_sign(adapter_case["sign"].get<std::string>());
  options.train = model::parse_train(adapter_case["train"].get<std::string>());
  options.lambda.schedule = model::Schedule::kConstant;
  options.lambda.value = 0.2;  // what acts is the list of λ, one a layer
  return options;
}

}  // namespace

std::vector<float> uniform(uint32_t tensor, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t x = static_cast<uint32_t>(i) * 0x85EBCA6BU + tensor * 0x9E3779B9U;
    x = (x ^ (x >> 16)) * 0x7FEB352DU;
    x = (x ^ (x >> 15)) * 0x846CA68BU;
    x ^= x >> 16;
    values[i] = static_cast<float>(x / 4294967296.0 - 0.5);
  }
  return values;
}

model::Adapter random_adapter(const json& adapter_case, const json& rule,
                              const model::Config& config, const model::Weights& base) {
  model::Adapter adapter;
  const auto options = options_of(adapter_case);
  adapter.selected_heads = rule["selected_heads"].get<std::vector<std::vector<int64_t>>>();
  adapter.lambda = rule["lambda"].get<std::vector<double>>();
  adapter.adaptation = model::initial_adaptation(options, config, base, adapter.selected_heads, 1);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    auto& change = adapter.adaptation.layers[layer];
    const auto& weights = base.layers[layer];
    change.lambda = {.fixed = adapter.lambda[layer], .learned = 0};
    change.branch.w_d = numbers(layer, kWd, change.branch.w_d.sizes(), rule["w_d_scale"]);
    if (options.form == model::Form::kHeadMean) {
      change.branch.gate = numbers(layer, kGate, {config.heads}, rule["gate_scale"]);
    }
    if (!options.trains_kvo()) continue;
    change.k = changed(weights.k, layer, kK, rule["kvo_scale"]);
    change.v = changed(weights.v, layer, kV, rule["kvo_scale"]);
    change.o = changed(weights.o, layer, kO, rule["kvo_scale"]);
  }
  return adapter;
}

}  // namespace dex::golden
