#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "worker/model/adapter.h"

namespace dex::golden {

// Numbers 0 … count − 1 of tensor `tensor` in [−½, ½), by the rule of tests/data/golden/README.md.
std::vector<float> uniform(uint32_t tensor, int64_t count);

// The adapter of a case of adapter.json (`rule` is the file's). Base weights must be fp32.
model::Adapter random_adapter(const nlohmann::json& adapter_case, const nlohmann::json& rule,
                              const model::Config& config, const model::Weights& base);

}  // namespace dex::golden
