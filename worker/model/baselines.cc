#include "worker/model/baselines.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "services/base/method_constants.h"
#include "worker/model/named_values.h"

namespace dex::model {

namespace {

static_assert(kLinears.size() == base::kLinearPaths.size());  // the same, in the same order

constexpr std::array<std::pair<AdapterActivation, std::string_view>, 2> kAdapterActivations{
    {{AdapterActivation::kRelu, "relu"}, {AdapterActivation::kGelu, "gelu"}}};
constexpr std::array<std::pair<Placement, std::string_view>, 3> kPlacements{
    {{Placement::kBoth, "both"}, {Placement::kAttention, "attention"}, {Placement::kMlp, "mlp"}}};

[[noreturn]] void unknown(std::string_view what, std::string_view text, const std::string& known) {
  throw std::runtime_error("[baselines] " + std::string(what) + " must be one of " + known +
                           ", got \"" + std::string(text.substr(0, 60)) + "\"");
}

std::string shown(double value) {
  return std::isfinite(value) ? std::to_string(value) : "no finite number";
}

}  // namespace

std::string_view path(Linear value) {
  return base::kLinearPaths[static_cast<size_t>(value)];
}
std::string_view name(Linear value) {
  return base::linear_name(path(value));
}
Linear parse_linear(std::string_view text) {
  std::string known;
  for (const Linear linear : kLinears) {
    if (name(linear) == text) return linear;
    known += (known.empty() ? "" : ", ") + std::string(name(linear));
  }
  unknown("target module", text, known);
}

LinearShape shape_of(Linear value, const Config& config) {
  const int64_t D = config.hidden_size, F = config.intermediate_size, d = config.head_dim;
  switch (value) {
    case Linear::kQ:
      return {config.query_heads() * d, D};
    case Linear::kK:
      return {config.key_heads() * d, D};
    case Linear::kV:
      return {config.kv_heads * d, D};
    case Linear::kO:
      return {D, config.heads * d};
    case Linear::kGate:
    case Linear::kUp:
      return {F, D};
    case Linear::kDown:
      break;
  }
  return {D, F};
}

double lora_scale(double alpha, int64_t r, bool rslora) {
  return alpha / (rslora ? std::sqrt(static_cast<double>(r)) : static_cast<double>(r));
}

std::string_view name(AdapterActivation value) {
  return name_in(kAdapterActivations, value);
}
std::string_view name(Placement value) {
  return name_in(kPlacements, value);
}
AdapterActivation parse_adapter_activation(std::string_view text) {
  return parse_in(kAdapterActivations, "activation", text);
}
Placement parse_placement(std::string_view text) {
  return parse_in(kPlacements, "placement", text);
}

std::vector<std::string> problems(const LoraOptions& options) {
  std::vector<std::string> found;
  if (options.r < 1 || options.r > kMostRank) {
    found.push_back("r must be between 1 and " + std::to_string(kMostRank) + ", got " +
                    std::to_string(options.r));
  }
  // α = 0 is a dead point: each factor's gradient is multiplied by it.
  if (!std::isfinite(options.alpha) || options.alpha <= 0)
    found.push_back("alpha must be a number above 0, got " + shown(options.alpha));
  if (!(options.dropout >= 0 && options.dropout < 1))
    found.push_back("dropout must be at least 0 and below 1, got " + shown(options.dropout));
  if (options.targets.empty()) found.push_back("target_modules must name at least one linear");
  for (size_t i = 0; i < options.targets.size(); ++i) {
    if (std::count(options.targets.begin(), options.targets.begin() + static_cast<int64_t>(i),
                   options.targets[i]) > 0)
      found.push_back("target_modules names " + std::string(name(options.targets[i])) + " twice");
  }
  return found;
}

std::vector<std::string> problems(const BottleneckAdapterOptions& options) {
  if (options.size >= 1 && options.size <= kMostSize) return {};
  return {"size must be between 1 and " + std::to_string(kMostSize) + ", got " +
          std::to_string(options.size)};
}

}  // namespace dex::model
