#pragma once

#include <string>
#include <vector>

#include "client/cli/command.h"
#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace dex::cli {

// `jobs sweep`: a job for each combination of values, all or none.
void add_sweep(CLI::App& jobs, Action& action);

// "hyperparameters.learning_rate=1e-5,2e-5" → the axis: numbers, true and false as such, all else
// as text. INVALID_FIELD without a path or a value.
base::Result<v1::BatchCreateFineTuningJobsRequest::Axis> parse_axis(const std::string& text);

}  // namespace dex::cli
