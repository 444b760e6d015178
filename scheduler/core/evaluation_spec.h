#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "dex/v1/evaluation.pb.h"
#include "dex/v1/models.pb.h"
#include "scheduler/core/check_spec.h"

namespace dex::core {

inline constexpr int kMostSubjects = 4;

// A file that a spec names (proto/task_files.h), and where: {"tasks[0].perplexity.file", "file-…"}.
struct NamedFile {
  std::string field;
  std::string id;
};
std::vector<NamedFile> evaluation_files(const v1::EvaluationSpec& spec);

// The name of a task, as in its rows: "perplexity". Empty: none is set.
std::string task_name(const v1::EvaluationTask& task);

// What can be said of a spec without its files and subjects: limits, missing and unused fields,
// everything at once. `model` is the base of the subjects. Fields are paths below the spec.
std::vector<Problem> check_evaluation(const v1::EvaluationSpec& spec, const v1::Model& model);

// Sets what was left to us: labels of subjects, seed, confidence, and formats of texts by the names
// of their files (`names`: by id). Call it on a spec that check_evaluation has nothing against.
void fill_evaluation(v1::EvaluationSpec& spec, const std::map<std::string, std::string>& names);

// Seconds that an evaluation may take, for its place in the queue and never for promises: 2 FLOP a
// parameter and token at the speed of a small CPU. `bytes`: of each file, by id.
double evaluation_seconds(const v1::EvaluationSpec& spec, const v1::Model& model,
                          const std::map<std::string, int64_t>& bytes);

}  // namespace dex::core
