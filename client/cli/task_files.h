#pragma once

#include "client/cli/command.h"
#include "client/cli/file_argument.h"
#include "dex/v1/evaluation_task.pb.h"

namespace dex::cli {

// Puts ids in the place of a task's paths, which are uploaded for evaluations. Failures are
// file_argument's.
base::Status upload_task_files(Context& context, v1::EvaluationTask& task, Upload upload);

}  // namespace dex::cli
