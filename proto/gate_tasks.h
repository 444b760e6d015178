#pragma once

#include <string>
#include <vector>

#include "dex/v1/evaluation.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "proto/spec_values.h"

// Gates on tasks of EvaluationService (finetuning.proto, Gate): what they may name, and the
// evaluation that measures them. Pure; for scheduler, agent and client alike.
namespace dex::proto {

// The name of a task, as in its rows: "perplexity". Empty: none is set.
std::string name_of_task(const dex::v1::EvaluationTask& task);

// A metric of a task's rows, and by which dims it has them. For a test: what the tasks say of
// themselves (worker/evaluate/task.h, Task::metrics) is the same.
struct TaskMetric {
  std::string task, metric;
  // Each sorted; the empty one is the row over everything. {"*"}: any one dim, the file says which.
  std::vector<std::vector<std::string>> groupings;
};
const std::vector<TaskMetric>& task_metrics();

// What is wrong with a gate that has an evaluation, but for what every gate has, and but for the
// options of its task, which depend on the model (scheduler/core/gate_tasks.h). `at` is
// "gates[0].".
std::vector<BadValue> bad_task_gate(const dex::v1::Gate& gate, const std::string& at);

// Whether the metric is one that bases don't have, as a rule: its default is then the figure
// itself.
bool is_of_adapter_alone(const dex::v1::Gate& gate);
// Whether it is one of method dex's branch.
bool needs_branch(const dex::v1::Gate& gate);

// Whether it is against another adapter: AGAINST_ADAPTER, AGAINST_KVO_ONLY.
bool compares_with_other(const dex::v1::Gate& gate);

bool has_task_gates(const dex::v1::FineTuningJobSpec& spec);

// Labels of the subjects of gate_evaluation, the first being what the other is compared with.
inline constexpr const char* kBaseSubject = "base";
inline constexpr const char* kAdapterSubject = "adapter";

// The evaluation of a job's gates: its base, the adapter that it has made and the others that gates
// name, in their order; the gates' tasks in their order, equal ones once. Without tasks where no
// gate has one.
dex::v1::EvaluationSpec gate_evaluation(const dex::v1::FineTuningJobSpec& spec,
                                        const std::string& base, const std::string& adapter);
// The label in it of the other adapter that the gate names; empty: there is none.
std::string label_of_other(const dex::v1::EvaluationSpec& evaluation, const dex::v1::Gate& gate);
// Which of its tasks is the gate's; −1: none.
int task_of_gate(const dex::v1::EvaluationSpec& evaluation, const dex::v1::Gate& gate);

}  // namespace dex::proto
