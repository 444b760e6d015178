#include "scheduler/core/gate_tasks.h"

#include <iterator>

#include "proto/gate_tasks.h"

namespace dex::core {

namespace {

std::string evaluation_of_gate(int index) {
  return "gates[" + std::to_string(index) + "].evaluation";
}

v1::EvaluationSpec one_task(const v1::EvaluationTask& task) {
  v1::EvaluationSpec spec;
  *spec.add_tasks() = task;
  return spec;
}

}  // namespace

std::vector<NamedFile> gate_files(const v1::FineTuningJobSpec& spec) {
  const std::string alone = "tasks[0]";
  std::vector<NamedFile> files;
  for (int i = 0; i < spec.gates_size(); ++i) {
    if (!spec.gates(i).has_evaluation()) continue;
    for (const NamedFile& file : evaluation_files(one_task(spec.gates(i).evaluation())))
      files.push_back({evaluation_of_gate(i) + file.field.substr(alone.size()), file.id});
  }
  return files;
}

std::vector<Problem> check_gate_tasks(const v1::FineTuningJobSpec& spec, const v1::Model& model) {
  std::vector<Problem> problems;
  for (int i = 0; i < spec.gates_size(); ++i) {
    if (!spec.gates(i).has_evaluation()) continue;
    auto found = check_evaluation_task(spec.gates(i).evaluation(), evaluation_of_gate(i), model);
    problems.insert(problems.end(), std::make_move_iterator(found.begin()),
                    std::make_move_iterator(found.end()));
  }
  return problems;
}

void fill_gate_tasks(v1::FineTuningJobSpec& spec, const TaskFiles& files) {
  std::map<std::string, std::string> names;
  for (const auto& [id, file] : files) names[id] = file.name;
  for (auto& gate : *spec.mutable_gates()) {
    if (!gate.has_evaluation()) continue;
    v1::EvaluationSpec one = one_task(gate.evaluation());
    fill_evaluation(one, names);
    *gate.mutable_evaluation() = one.tasks(0);
  }
}

double gate_flops(const v1::FineTuningJobSpec& spec, const v1::Model& model,
                  const TaskFiles& files) {
  std::map<std::string, int64_t> bytes;
  for (const auto& [id, file] : files) bytes[id] = file.bytes;
  return evaluation_flops(proto::gate_evaluation(spec, model.name(), ""), model, bytes);
}

}  // namespace dex::core
