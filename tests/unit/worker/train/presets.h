#pragma once

#include <string>
#include <vector>

#include "worker/train/spec.h"

namespace dex::train::testing {

// The seven presets of method.md §5 for a small base, as an effective spec has them, with run
// lengths and thresholds that make sense for a model of eight heads.
struct Preset {
  std::string name;
  void apply(JobSpec& spec) const {
    spec.preset = name;
    auto& lambda = spec.dex.lambda;
    if (name == "paper") return;  // the defaults
    spec.dex.form = model::Form::kHeadMean;
    spec.dex.projection = model::Projection::kPerHead;
    spec.dex.sign = model::Sign::kPlus;
    lambda.schedule = model::Schedule::kSeedCosine;
    const bool small =
        name == "small" || name == "code" || name == "long_text" || name == "multilingual";
    lambda.start = small ? 0.05 : 0.1;
    lambda.end = name == "code" ? 0.65 : small ? 0.3 : 0.5;
    spec.anneal.steps = name == "large"       ? 8000
                        : name == "medium"    ? 5000
                        : name == "long_text" ? 10000
                                              : 3000;
    spec.heads.criterion = evaluate::Criterion::kThreshold;
    spec.heads.tau = name == "code" ? 1.8 : name == "large" ? 1.5 : name == "medium" ? 1.2 : 1.0;
    spec.heads.eta = name == "large" ? .07 : name == "medium" ? .05 : .03;
    if (name == "multilingual") {
      spec.dex.projection = model::Projection::kBottleneck;
      spec.dex.bottleneck_scope = model::BottleneckScope::kPerHead;
      spec.dex.width_ratio = 1.5;
      spec.reselect_every = 500;
    }
  }
};

inline std::vector<Preset> presets() {
  return {{"paper"}, {"small"}, {"medium"}, {"large"}, {"code"}, {"long_text"}, {"multilingual"}};
}

}  // namespace dex::train::testing
