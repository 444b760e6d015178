#pragma once

#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "scheduler/core/check_spec.h"
#include "scheduler/core/workload.h"

namespace dex::core {

// Weights of groups that no row of the training file is of (Hyperparameters.group_weights), as far
// as its counts tell: of more than 100 tags or languages they name the largest only. The trainer
// asks the rows themselves.
std::vector<Problem> check_groups(const dex::v1::FineTuningJobSpec& spec,
                                  const DataFacts& training);

// "group_single: …" where group_by finds fewer than two groups in the file, else empty.
std::string group_advice(const dex::v1::FineTuningJobSpec& spec, const DataFacts& training);

}  // namespace dex::core
