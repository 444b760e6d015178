#include "worker/evaluate/branch_effect_report.h"

#include <nlohmann/json.hpp>

namespace dex::evaluate {
namespace {

constexpr double kInertBelow = 0.002, kWeakBelow = 0.02;

}  // namespace

BranchEffect::Verdict verdict(double value) {
  if (value < kInertBelow) return BranchEffect::Verdict::kInert;
  return value < kWeakBelow ? BranchEffect::Verdict::kWeak : BranchEffect::Verdict::kActive;
}

const char* name(BranchEffect::Verdict verdict) {
  switch (verdict) {
    case BranchEffect::Verdict::kInert:
      return "INERT";
    case BranchEffect::Verdict::kWeak:
      return "WEAK";
    case BranchEffect::Verdict::kActive:
      return "ACTIVE";
    case BranchEffect::Verdict::kNotApplicable:
      return "NOT_APPLICABLE";
  }
  return "";
}

std::string to_json(const BranchEffect& effect) {
  nlohmann::json ratios = nlohmann::json::array();
  for (const auto& layer : effect.layers) {
    ratios.push_back(layer.ratio ? nlohmann::json(*layer.ratio) : nlohmann::json(nullptr));
  }
  const nlohmann::json out = {
      {"verdict", name(effect.verdict)},
      {"value", effect.value},
      {"per_layer", ratios},
      {"ce_delta", effect.ce_delta},
      {"tokens", effect.tokens},
      {"thresholds",
       {{"inert_below", kInertBelow}, {"weak_below", kWeakBelow}, {"chosen_by", "this project"}}}};
  return out.dump();
}

}  // namespace dex::evaluate
