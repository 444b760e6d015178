#pragma once

#include <string>
#include <vector>

#include "client/cli/output.h"
#include "dex/v1/finetuning.pb.h"

namespace dex::cli {

Table job_table(const std::vector<v1::FineTuningJob>& jobs);
// One job in full, for people: state, progress, figures, where the result is.
Table job_details(const v1::FineTuningJob& job);
// What create is about to do: the effective values with their sources (those from DEFAULT left
// out; --output json has them), time, memory, sizes, warnings.
std::string estimate_text(const v1::Estimate& estimate, const Terminal& terminal);

}  // namespace dex::cli
