#include "client/cli/evaluation_flags.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "client/cli/set_field.h"
#include "services/base/files.h"

namespace dex::cli {

namespace {

constexpr int64_t kLargestEvaluationSpec = 1 << 20;

base::Result<v1::EvaluationSpec> read_evaluation_spec(const std::string& path) {
  v1::EvaluationSpec spec;
  if (path.empty()) return spec;
  DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, kLargestEvaluationSpec));
  const auto status = google::protobuf::util::JsonStringToMessage(text, &spec);
  if (!status.ok())
    return base::invalid_argument("INVALID_FIELD", path + ": " + std::string(status.message()));
  return spec;
}

base::Status add_task(const EvaluationFlags& flags, v1::EvaluationSpec& spec) {
  if (flags.task.empty()) {
    if (flags.file.empty() && flags.shots_file.empty() && flags.sets.empty()) return {};
    return base::invalid_argument(
        "MISSING_FIELD", "--file, --shots-file and --set belong to a --task: " + task_names());
  }
  std::string name = flags.task;
  std::replace(name.begin(), name.end(), '-', '_');
  const auto* field = v1::EvaluationTask::descriptor()->FindFieldByName(name);
  if (field == nullptr) {
    return base::invalid_argument("INVALID_FIELD",
                                  "--task \"" + flags.task + "\" is not one of " + task_names());
  }
  auto& task = *spec.add_tasks();
  task.GetReflection()->MutableMessage(&task, field);
  if (!flags.file.empty()) DEX_RETURN_IF_ERROR(set_field(task, name + ".file", flags.file));
  if (!flags.shots_file.empty())
    DEX_RETURN_IF_ERROR(set_field(task, name + ".shots_file", flags.shots_file));
  for (const std::string& text : flags.sets) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return base::invalid_argument("INVALID_FIELD", "--set \"" + text + "\" is not option=value");
    DEX_RETURN_IF_ERROR(
        set_field(task, name + "." + text.substr(0, equals), text.substr(equals + 1)));
  }
  return {};
}

base::Status add_subjects(const EvaluationFlags& flags, v1::EvaluationSpec& spec) {
  if (flags.model.empty() && flags.adapters.empty()) return {};
  const std::string model =
      flags.model.empty() ? base_model_of(flags.adapters.front()) : flags.model;
  spec.add_subjects()->set_model(model);
  for (const std::string& adapter : flags.adapters) {
    auto& subject = *spec.add_subjects();
    subject.set_model(model);
    const size_t at = adapter.find('@');  // of no id
    subject.set_adapter(adapter.substr(0, at));
    if (at != std::string::npos)
      DEX_RETURN_IF_ERROR(set_field(subject, "dex_lambda_scale", adapter.substr(at + 1)));
  }
  return {};
}

// Behind each subject the same in eight bits. One that has a label gives it on.
base::Status add_twins(v1::EvaluationSpec& spec) {
  google::protobuf::RepeatedPtrField<v1::EvaluationSubject> all;
  for (const auto& subject : spec.subjects()) {
    if (subject.has_dtype()) {
      return base::invalid_argument("CONFLICTING_FIELDS",
                                    "--against-int8 is for subjects that have no dtype of their "
                                    "own; leave one of them out");
    }
    *all.Add() = subject;
    v1::EvaluationSubject& twin = *all.Add();
    twin = subject;
    twin.set_dtype(v1::EvaluationSubject::DTYPE_INT8);
    if (!twin.label().empty()) twin.set_label(twin.label() + "-int8");
  }
  *spec.mutable_subjects() = std::move(all);
  return {};
}

}  // namespace

std::string base_model_of(const std::string& adapter) {
  const size_t begin = adapter.find(':') + 1;
  return adapter.substr(begin, adapter.find(':', begin) - begin);
}

std::string task_names() {
  std::string names;
  const auto* oneof = v1::EvaluationTask::descriptor()->FindOneofByName("task");
  for (int i = 0; i < oneof->field_count(); ++i)
    names += (names.empty() ? "" : ", ") + oneof->field(i)->name();
  return names;
}

base::Result<v1::EvaluationSpec> make_evaluation_spec(const EvaluationFlags& flags) {
  DEX_ASSIGN_OR_RETURN(v1::EvaluationSpec spec, read_evaluation_spec(flags.spec_file));
  DEX_RETURN_IF_ERROR(add_subjects(flags, spec));
  DEX_RETURN_IF_ERROR(add_task(flags, spec));
  if (!flags.seed.empty()) DEX_RETURN_IF_ERROR(set_field(spec, "seed", flags.seed));
  if (!flags.confidence.empty())
    DEX_RETURN_IF_ERROR(set_field(spec, "confidence", flags.confidence));
  for (const auto& pair : flags.metadata) DEX_RETURN_IF_ERROR(set_field(spec, "metadata", pair));
  if (spec.subjects().empty())
    return base::invalid_argument("MISSING_FIELD", "name what to measure: --model or --adapter");
  if (flags.against_int8) DEX_RETURN_IF_ERROR(add_twins(spec));
  if (spec.tasks().empty())
    return base::invalid_argument("MISSING_FIELD", "name a --task: " + task_names());
  return spec;
}

}  // namespace dex::cli
