#pragma once

#include "client/cli/command.h"
#include "dex/v1/evaluation_task.pb.h"

namespace dex::cli {

// Paths in the place of a task's file ids are uploaded for evaluations (file_argument.h). Failures
// are file_argument's.
base::Status upload_task_files(Context& context, v1::EvaluationTask& task);

}  // namespace dex::cli
