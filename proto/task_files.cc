#include "proto/task_files.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

namespace dex::proto {

namespace {

// The field of the oneof that is set; null: none.
const google::protobuf::FieldDescriptor* set_task(const dex::v1::EvaluationTask& task) {
  const auto* oneof = dex::v1::EvaluationTask::descriptor()->FindOneofByName("task");
  return task.GetReflection()->GetOneofFieldDescriptor(task, oneof);
}

bool names_a_file(const google::protobuf::FieldDescriptor& field) {
  return field.type() == google::protobuf::FieldDescriptor::TYPE_STRING && !field.is_repeated() &&
         (field.name() == "file" || field.name().ends_with("_file"));
}

}  // namespace

std::vector<TaskFile> task_files(const dex::v1::EvaluationTask& task) {
  std::vector<TaskFile> out;
  const auto* chosen = set_task(task);
  if (chosen == nullptr) return out;
  const google::protobuf::Message& options = task.GetReflection()->GetMessage(task, chosen);
  for (int i = 0; i < options.GetDescriptor()->field_count(); ++i) {
    const auto* field = options.GetDescriptor()->field(i);
    if (names_a_file(*field))
      out.push_back({field->name(), options.GetReflection()->GetString(options, field)});
  }
  return out;
}

bool needs_file(const dex::v1::EvaluationTask& task) {
  return !task.has_multi_needle();
}

void set_task_file(dex::v1::EvaluationTask& task, const std::string& field,
                   const std::string& file) {
  const auto* chosen = set_task(task);
  if (chosen == nullptr) return;
  google::protobuf::Message& options = *task.GetReflection()->MutableMessage(&task, chosen);
  options.GetReflection()->SetString(&options, options.GetDescriptor()->FindFieldByName(field),
                                     file);
}

}  // namespace dex::proto
