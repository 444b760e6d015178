#include "client/cli/job_spec.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>

#include "client/cli/set_field.h"
#include "services/base/files.h"

namespace dex::cli {

namespace {

using base::Result;
using base::Status;

constexpr int64_t kLargestSpec = 1 << 20;

Result<v1::FineTuningJobSpec> read_spec(const std::string& path) {
  v1::FineTuningJobSpec spec;
  if (path.empty()) return spec;
  DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, kLargestSpec));
  const auto status = google::protobuf::util::JsonStringToMessage(text, &spec);
  if (!status.ok())
    return base::invalid_argument("INVALID_FIELD", path + ": " + std::string(status.message()));
  return spec;
}

Status apply_method(const SpecFlags& flags, v1::FineTuningJobSpec& spec) {
  std::string method = flags.method;
  std::replace(method.begin(), method.end(), '-', '_');
  // A spec file may have chosen another method; only an explicit flag changes it.
  if (method.empty() && spec.method_case() == v1::FineTuningJobSpec::METHOD_NOT_SET) method = "dex";
  if (!method.empty()) {
    // The members of the spec's oneof are the methods that there are, by their names.
    const auto& methods = *v1::FineTuningJobSpec::descriptor()->FindOneofByName("method");
    const google::protobuf::FieldDescriptor* chosen = nullptr;
    std::string names;
    for (int i = 0; i < methods.field_count(); ++i) {
      names += (i ? ", " : "") + methods.field(i)->name();
      if (methods.field(i)->name() == method) chosen = methods.field(i);
    }
    if (!chosen) {
      return base::invalid_argument("INVALID_FIELD",
                                    "--method \"" + flags.method + "\" is not one of " + names);
    }
    spec.GetReflection()->MutableMessage(&spec, chosen);
  }
  if (flags.preset.empty()) return {};
  if (!spec.has_dex()) {
    return base::invalid_argument(
        "UNUSED_FIELD",
        "--preset has no effect with " +
            (flags.method.empty() ? "the spec file's method" : "--method " + flags.method) +
            ": presets are for dex");
  }
  spec.mutable_dex()->set_preset(flags.preset);
  return {};
}

// Splits "path=value" at the first '='.
Status apply_set(const std::string& text, v1::FineTuningJobSpec& spec) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return base::invalid_argument("INVALID_FIELD", "--set \"" + text + "\" is not path=value");
  }
  return set_field(spec, text.substr(0, equals), text.substr(equals + 1));
}

}  // namespace

Result<v1::FineTuningJobSpec> make_spec(const SpecFlags& flags) {
  DEX_ASSIGN_OR_RETURN(v1::FineTuningJobSpec spec, read_spec(flags.spec_file));
  DEX_RETURN_IF_ERROR(apply_method(flags, spec));
  const std::pair<const char*, const std::string&> fields[] = {
      {"model", flags.model},
      {"training_file", flags.training_file},
      {"validation_file", flags.validation_file},
      {"suffix", flags.suffix},
      {"display_name", flags.name},
      {"seed", flags.seed},
      {"hyperparameters.n_epochs", flags.epochs},
      {"hyperparameters.max_steps", flags.max_steps},
      {"hyperparameters.batch_size", flags.batch_size},
      {"hyperparameters.learning_rate", flags.learning_rate},
      {"hyperparameters.max_seq_length", flags.max_seq_length},
  };
  for (const auto& [path, value] : fields) {
    if (!value.empty()) DEX_RETURN_IF_ERROR(set_field(spec, path, value));
  }
  for (const auto& pair : flags.metadata) DEX_RETURN_IF_ERROR(set_field(spec, "metadata", pair));
  for (const auto& text : flags.sets) DEX_RETURN_IF_ERROR(apply_set(text, spec));
  return spec;
}

}  // namespace dex::cli
