#pragma once

#include "dex/v1/evaluation.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace dex::cli {

// What dexctl's exit code tells a script (api.md §8).
enum ExitCode : int {
  kDone = 0,
  kOwnFault = 1,  // a fault in dexctl itself
  kUsage = 2,
  kUserFault = 3,    // request or data must be repaired; also NOT_FOUND
  kSystemFault = 4,  // try again, or ask the operator
  kJobStopped = 5,   // cancelled or expired
  kCapacity = 6,     // try later, or ask for less
  kNotPassed = 7,    // a gate of the job, a comparison that found worse; warnings of doctor
  kInterrupted = 130,
};

int exit_code(const base::Status& status);
// Of a job or an evaluation that was followed to its end.
int exit_code(const v1::FineTuningJob& job);
int exit_code(const v1::Evaluation& evaluation);
// kNotPassed where b is worse in a row over everything; of tasks that have none (icl), in any row.
// In many rows over little some are worse by chance.
int exit_code(const v1::CompareEvaluationsResponse& comparison);

}  // namespace dex::cli
