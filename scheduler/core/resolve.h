#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "dex/v1/models.pb.h"
#include "scheduler/core/gate_tasks.h"
#include "scheduler/core/warm_start.h"
#include "scheduler/core/workload.h"
#include "services/base/status.h"

namespace dex::core {

struct ResolveInput {
  dex::v1::FineTuningJobSpec spec;    // what the user sent
  dex::v1::Model model;               // the base model's facts
  std::optional<StartAdapter> start;  // where spec.model is an adapter
  DataFacts training;
  std::optional<DataFacts> validation;
  TaskFiles gate_files;  // of all that gates name (gate_tasks.h)
  int64_t seed = 0;      // used where the user gave none
  std::string default_pool = "cpu";
};

struct Resolved {
  dex::v1::EffectiveConfig config;
  Workload workload;
  double gate_flops = 0;              // of the gates' tasks
  std::vector<std::string> warnings;  // "annealing_clamped: …", one sentence each
};

// preset → domain overrides → user's fields → automatic values → checks (method.md §5). The result
// names every value and its source. INVALID_ARGUMENT lists all bad fields at once. Pure: same
// input, same result.
base::Result<Resolved> resolve(const ResolveInput& input);

}  // namespace dex::core
