#include "worker/agent/gate_stage.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "proto/gate_tasks.h"
#include "proto/gates.h"
#include "services/statistics/paired.h"
#include "worker/agent/evaluator_start.h"

namespace dex::agent {

namespace {

dex::v1::EvaluationSpec evaluation_of(const iv1::ClaimedJob& job) {
  const std::string& base = job.base_model().empty() ? job.spec().model() : job.base_model();
  return proto::gate_evaluation(job.spec(), base, job.adapter_id());
}

bool is_there(const std::string& folder, const DataPaths& paths) {
  const auto path = paths.absolute(folder);
  std::error_code ignored;
  return path.ok() && std::filesystem::is_directory(*path, ignored);
}

// Removes the subjects whose adapter the evaluator would look for in vain.
void drop_missing(iv1::ClaimedJob& evaluation) {
  std::set<std::string> known = {""};  // the base
  for (const auto& adapter : evaluation.evaluated_adapters()) known.insert(adapter.id());
  auto& subjects = *evaluation.mutable_evaluation()->mutable_subjects();
  for (int i = subjects.size() - 1; i >= 0; --i) {
    if (!known.contains(subjects.Get(i).adapter())) subjects.DeleteSubrange(i, 1);
  }
}

// The row of the gate's metric and dims, with the difference to the other adapter's in place of the
// base's: the numbers that the base's difference is made of, paired by sample in the same way.
dex::v1::EvaluationRow row_against(const dex::v1::Gate& gate, const statistics::ItemRow& own,
                                   const statistics::ItemRow& other,
                                   const dex::v1::EvaluationSpec& evaluation) {
  dex::v1::EvaluationRow row;
  row.set_subject(proto::kAdapterSubject);
  row.set_metric(gate.metric());
  *row.mutable_dims() = gate.dims();
  const statistics::Pairs pairs = statistics::pairs_of(other, own);
  const auto found = statistics::compare(
      pairs.base, pairs.subject, own.rule,
      {.confidence = evaluation.confidence(), .seed = static_cast<uint64_t>(evaluation.seed())});
  if (!found) return row;
  row.set_delta(found->delta);
  row.set_n(found->n);
  if (found->interval) {
    row.set_delta_low(found->interval->low);
    row.set_delta_high(found->interval->high);
  }
  return row;
}

// Why there is no pair of rows to compare.
std::string no_pair(const dex::v1::Gate& gate, const std::string& label,
                    const dex::v1::EvaluationResult& result, const statistics::TaskItems& items) {
  const auto of_other = [&label](const auto& rows, const auto& subject) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const auto& row) { return subject(row) == label; });
  };
  const bool measured =
      of_other(result.rows(), [](const dex::v1::EvaluationRow& row) { return row.subject(); }) ||
      of_other(items.rows, [](const statistics::ItemRow& row) { return row.subject; });
  if (!measured)
    return gate.adapter() + " was deleted before it could be measured beside the new adapter";
  if (items.left_out == 0) return "the task gave no such row: its file or an adapter lacks it";
  return "the task has too many samples to keep the numbers of each, by which adapters are "
         "compared: " +
         std::to_string(items.left_out) + " rows found no room; give it fewer";
}

dex::v1::GateResult judge_against_other(const dex::v1::Gate& gate,
                                        const dex::v1::EvaluationSpec& evaluation,
                                        const dex::v1::EvaluationResult& result,
                                        const std::optional<statistics::TaskItems>& items) {
  if (!items) return proto::unmeasured_gate(gate, "its task has kept no numbers by item");
  std::map<std::string, std::string> dims;
  for (const auto& [key, value] : gate.dims()) dims[key] = value;
  const std::string label = proto::label_of_other(evaluation, gate);
  const auto* own = statistics::find_row(*items, gate.metric(), dims, proto::kAdapterSubject);
  const auto* other = statistics::find_row(*items, gate.metric(), dims, label);
  if (own == nullptr || other == nullptr)
    return proto::unmeasured_gate(gate, no_pair(gate, label, result, *items));
  google::protobuf::RepeatedPtrField<dex::v1::EvaluationRow> rows;
  *rows.Add() = row_against(gate, *own, *other, evaluation);
  return proto::judge_gate(gate, rows);
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
  for (const auto& other : job.evaluated_adapters()) {
    if (is_there(other.path(), paths)) *evaluation.add_evaluated_adapters() = other;
  }
  drop_missing(evaluation);
  if (trained.has_evaluation()) *evaluation.mutable_checkpoint() = trained.evaluation();
  return evaluator_start(evaluation, models, paths);
}

std::vector<bool> tasks_with_others(const iv1::ClaimedJob& job) {
  const dex::v1::EvaluationSpec evaluation = evaluation_of(job);
  std::vector<bool> out(static_cast<size_t>(evaluation.tasks_size()), false);
  for (const auto& gate : job.spec().gates()) {
    if (!gate.has_evaluation() || !proto::compares_with_other(gate)) continue;
    const int task = proto::task_of_gate(evaluation, gate);
    if (task >= 0) out[static_cast<size_t>(task)] = true;
  }
  return out;
}

std::vector<dex::v1::GateResult> judge_task_gates(const iv1::ClaimedJob& job,
                                                  const GateReport& measured) {
  const dex::v1::EvaluationSpec evaluation = evaluation_of(job);
  std::vector<dex::v1::GateResult> results;
  for (const auto& gate : job.spec().gates()) {
    if (!gate.has_evaluation()) continue;
    const int task = proto::task_of_gate(evaluation, gate);
    if (task < 0 || task >= measured.report.results_size()) {
      results.push_back(proto::unmeasured_gate(gate, "its task has no result"));
      continue;
    }
    const dex::v1::EvaluationResult& result = measured.report.results(task);
    results.push_back(proto::compares_with_other(gate)
                          ? judge_against_other(gate, evaluation, result,
                                                measured.items.at(static_cast<size_t>(task)))
                          : proto::judge_gate(gate, result.rows()));
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
