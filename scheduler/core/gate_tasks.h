#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "dex/v1/models.pb.h"
#include "scheduler/core/check_spec.h"
#include "scheduler/core/evaluation_spec.h"

// Tasks of EvaluationService that a job's gates ask for (finetuning.proto, Gate): an evaluation's
// rules, under the names that they have in a job's spec. Pure.
namespace dex::core {

// What is known of an uploaded file that a task reads.
struct TaskFile {
  std::string name;
  int64_t bytes = 0;
};
using TaskFiles = std::map<std::string, TaskFile>;  // by id

// {"gates[0].evaluation.perplexity.file", "file-…"}, as they stand in the spec.
std::vector<NamedFile> gate_files(const v1::FineTuningJobSpec& spec);

// Limits, missing and unused fields of the tasks.
std::vector<Problem> check_gate_tasks(const v1::FineTuningJobSpec& spec, const v1::Model& model);

// Sets what tasks leave open as evaluations have it: formats of texts by their files' names.
void fill_gate_tasks(v1::FineTuningJobSpec& spec, const TaskFiles& files);

// Floating-point operations that the gates' evaluation takes, base and adapter together; 0 without
// one.
double gate_flops(const v1::FineTuningJobSpec& spec, const v1::Model& model,
                  const TaskFiles& files);

}  // namespace dex::core
