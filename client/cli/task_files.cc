#include "client/cli/task_files.h"

#include <string>

#include "proto/task_files.h"

namespace dex::cli {

base::Status upload_task_files(Context& context, v1::EvaluationTask& task, Upload upload) {
  for (const auto& [field, file] : proto::task_files(task)) {
    if (file.empty()) continue;
    DEX_ASSIGN_OR_RETURN(const std::string id,
                         file_argument(context, file, v1::FILE_PURPOSE_EVALS, upload));
    proto::set_task_file(task, field, id);
  }
  return {};
}

}  // namespace dex::cli
