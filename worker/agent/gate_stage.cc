#include "worker/agent/gate_stage.h"

#include <map>
#include <utility>

#include "proto/gate_tasks.h"
#include "proto/gates.h"
#include "worker/agent/evaluator_start.h"

namespace dex::agent {

namespace {

dex::v1::EvaluationSpec evaluation_of(const iv1::ClaimedJob& job) {
  const std::string& base = job.base_model().empty() ? job.spec().model() : job.base_model();
  return proto::gate_evaluation(job.spec(), base, job.adapter_id());
}

}  // namespace

base::Result<iv1::EvaluatorStart> gate_evaluator_start(const iv1::ClaimedJob& job,
                                                       const iv1::TrainedState& trained,
                                                       const std::vector<BaseModelEntry>& models,
                                                       const DataPaths& paths) {
  iv1::ClaimedJob evaluation;
  evaluation.set_job_id(job.job_id());
  evaluation.set_attempt(job.attempt());
  *evaluation.mutable_evaluation() = evaluation_of(job);
  *evaluation.mutable_evaluation_files() = job.evaluation_files();
  auto& adapter = *evaluation.add_evaluated_adapters();
  adapter.set_id(job.adapter_id());
  adapter.set_path(trained.result().uri());
  adapter.set_content_sha256(trained.result().manifest_sha256());
  if (trained.has_evaluation()) *evaluation.mutable_checkpoint() = trained.evaluation();
  return evaluator_start(evaluation, models, paths);
}

std::vector<dex::v1::GateResult> judge_task_gates(const iv1::ClaimedJob& job,
                                                  const dex::v1::EvaluationReport& report) {
  const dex::v1::EvaluationSpec evaluation = evaluation_of(job);
  std::vector<dex::v1::GateResult> results;
  for (const auto& gate : job.spec().gates()) {
    if (!gate.has_evaluation()) continue;
    const int task = proto::task_of_gate(evaluation, gate);
    results.push_back(task >= 0 && task < report.results_size()
                          ? proto::judge_gate(gate, report.results(task).rows())
                          : proto::unmeasured_gate(gate, "its task has no result"));
  }
  return results;
}

std::vector<dex::v1::GateResult> unmeasured_task_gates(const iv1::ClaimedJob& job,
                                                       const std::string& why) {
  std::vector<dex::v1::GateResult> results;
  for (const auto& gate : job.spec().gates()) {
    if (gate.has_evaluation()) results.push_back(proto::unmeasured_gate(gate, why));
  }
  return results;
}

void add_gate_results(const iv1::ClaimedJob& job, const std::vector<dex::v1::GateResult>& results,
                      iv1::AttemptResult& result) {
  std::map<std::string, dex::v1::GateResult> by_name;
  for (const auto& known : result.gate_results()) by_name[known.gate()] = known;
  for (const auto& found : results) {
    by_name[found.gate()] = found;
    if (!found.passed() && found.on_fail() == "BLOCK_ALIAS") result.set_promotable(false);
  }
  result.clear_gate_results();
  for (const auto& gate : job.spec().gates()) {
    const auto known = by_name.find(gate.name());
    if (known != by_name.end()) *result.add_gate_results() = std::move(known->second);
  }
}

std::string failed_gates(const std::vector<dex::v1::GateResult>& results) {
  std::string text;
  for (const auto& result : results) {
    if (result.passed() || result.on_fail() != "FAIL_JOB") continue;
    text += (text.empty() ? "" : "; ") + proto::gate_sentence(result);
  }
  return text;
}

}  // namespace dex::agent
