#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dex::evaluate {

// What the branch does at the present λ, method.md §2.6.
struct BranchEffect {
  enum class Verdict { kInert, kWeak, kActive, kNotApplicable };
  struct Layer {
    std::optional<double>
        ratio;  // r_l = ‖λD‖_F / ‖O‖_F over selected heads and all tokens; none: no selected head
    double cosine = 0;  // cos(O, λD), 0 where λD = 0
    double lambda = 0;
  };
  Verdict verdict = Verdict::kNotApplicable;
  double value = 0;  // mean of r_l over layers that have a selected head
  std::vector<Layer> layers;
  double ce_delta = 0;  // CE(λ := 0) − CE(λ): positive when the branch helps
  int64_t tokens = 0;
};

// INERT below 0.002 (under half a bf16 ulp of O), WEAK below 0.02: thresholds of our own (method.md
// §2.6).
BranchEffect::Verdict verdict(double value);
const char* name(BranchEffect::Verdict verdict);  // "INERT" …

// {"verdict","value","per_layer":[r or null],"ce_delta","tokens"} and the thresholds, as
// adapter_config.json has it.
std::string to_json(const BranchEffect& effect);

}  // namespace dex::evaluate
