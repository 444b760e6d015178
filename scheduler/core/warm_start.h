#pragma once

#include <optional>
#include <string>

#include "dex/v1/finetuning.pb.h"
#include "scheduler/core/fields.h"
#include "services/base/status.h"

namespace dex::core {

// A published adapter that a job goes on from: `model` of its spec names it (api.md §3).
struct StartAdapter {
  std::string id;
  dex::v1::FineTuningJobSpec spec;  // effective, of the job that made it
  std::optional<double> lambda;     // as published; needed where it is not learned
};

// Whether `model` of the spec names an adapter rather than a base model.
bool goes_on(const dex::v1::FineTuningJobSpec& spec);
// The base model's name: `model` itself, or what the adapter's id says.
std::string base_model_of(const std::string& model);

// Gives `spec` what only the adapter can say, with source MODEL: method, form, projection, sign,
// train, LoRA's and the bottleneck adapter's shapes, soft_floor, the preset where the user names
// none; and a λ that begins where the adapter's is: LEARNED goes on from the learned values,
// CONSTANT keeps a scheduled one. ADAPTER_MISMATCH names what the user asked for otherwise, and
// whole models, from which no job goes on.
base::Status take_over(const StartAdapter& start, dex::v1::FineTuningJobSpec& spec,
                       Sources& sources);

}  // namespace dex::core
