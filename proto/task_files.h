#pragma once

#include <string>
#include <vector>

#include "dex/v1/evaluation.pb.h"

namespace dex::proto {

// A field of an evaluation's task that names an uploaded file.
struct TaskFile {
  std::string field;  // of the task's own message: "file", "shots_file"
  std::string file;   // an id, for dexctl also a path; empty where the field is not set
};

// Which fields of a task are files, for scheduler, worker and client alike: the strings called
// `file` or `…_file`, so a new task needs no line here. In the order of the message, whose first
// one, `file`, is the data. Nothing if no task is set.
std::vector<TaskFile> task_files(const dex::v1::EvaluationTask& task);

// Whether a task is nothing without its `file`: all but multi_needle, which has a text of its own.
bool needs_file(const dex::v1::EvaluationTask& task);

// Sets one of them. `field` is a name that task_files() gave of this task.
void set_task_file(dex::v1::EvaluationTask& task, const std::string& field,
                   const std::string& file);

}  // namespace dex::proto
