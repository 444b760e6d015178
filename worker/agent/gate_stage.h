#pragma once

#include <string>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "dex/internal/v1/worker.pb.h"
#include "services/base/status.h"
#include "worker/agent/data_paths.h"
#include "worker/agent/gate_checkpoint.h"
#include "worker/agent/model_list.h"

// The second half of an attempt whose gates ask for tasks of EvaluationService (finetuning.proto,
// Gate): an evaluation of base, new adapter and those that gates compare it with, and what the
// gates say of its rows.
namespace dex::agent {

namespace iv1 = dex::internal::v1;

// The evaluator's first frame, without its attempt's directory. Another adapter whose folder is
// gone is left out: it was deleted since. Fails as evaluator_start does.
base::Result<iv1::EvaluatorStart> gate_evaluator_start(const iv1::ClaimedJob& job,
                                                       const iv1::TrainedState& trained,
                                                       const std::vector<BaseModelEntry>& models,
                                                       const DataPaths& paths);

// Of the tasks of that evaluation, which ones a gate asks another adapter about.
std::vector<bool> tasks_with_others(const iv1::ClaimedJob& job);

// What the gates with an evaluation found, in their order. Pure, as the rest.
std::vector<dex::v1::GateResult> judge_task_gates(const iv1::ClaimedJob& job,
                                                  const GateReport& measured);
// The same where the evaluation could not be done, which is no reason to lose the training: they
// have not passed, and say why.
std::vector<dex::v1::GateResult> unmeasured_task_gates(const iv1::ClaimedJob& job,
                                                       const std::string& why);

// Adds them to what the trainer found of its own, all in the spec's order. One with BLOCK_ALIAS
// that has not passed makes the result not promotable.
void add_gate_results(const iv1::ClaimedJob& job, const std::vector<dex::v1::GateResult>& results,
                      iv1::AttemptResult& result);

// Of those with FAIL_JOB that have not passed, a sentence each; empty: there is none.
std::string failed_gates(const std::vector<dex::v1::GateResult>& results);

}  // namespace dex::agent
