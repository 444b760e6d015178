#include "client/cli/task_files.h"

#include <google/protobuf/descriptor.h>

#include <string>
#include <utility>
#include <vector>

#include "client/cli/file_argument.h"

namespace dex::cli {

base::Status upload_task_files(Context& context, v1::EvaluationTask& task) {
  const auto* oneof = v1::EvaluationTask::descriptor()->FindOneofByName("task");
  const auto* chosen = task.GetReflection()->GetOneofFieldDescriptor(task, oneof);
  if (chosen == nullptr) return {};
  auto& options = *task.GetReflection()->MutableMessage(&task, chosen);
  std::vector<const google::protobuf::FieldDescriptor*> set;
  options.GetReflection()->ListFields(options, &set);
  for (const auto* field : set) {
    if (field->name() != "file" && !field->name().ends_with("_file")) continue;
    auto id = file_argument(context, options.GetReflection()->GetString(options, field),
                            v1::FILE_PURPOSE_EVALS);
    DEX_RETURN_IF_ERROR(id.status());
    options.GetReflection()->SetString(&options, field, std::move(id).value());
  }
  return {};
}

}  // namespace dex::cli
