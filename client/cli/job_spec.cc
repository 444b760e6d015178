#include "client/cli/job_spec.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "client/cli/promote_if.h"
#include "client/cli/set_field.h"
#include "services/base/files.h"

namespace dex::cli {

namespace {

using base::Result;
using base::Status;

constexpr int64_t kLargestSpec = 1 << 20;
const std::string kFlagOff, kFlagOn = "true";  // of a flag that also switches something on

Result<v1::FineTuningJobSpec> read_spec(const std::string& path) {
  v1::FineTuningJobSpec spec;
  if (path.empty()) return spec;
  DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, kLargestSpec));
  const auto status = google::protobuf::util::JsonStringToMessage(text, &spec);
  if (!status.ok())
    return base::invalid_argument("INVALID_FIELD", path + ": " + std::string(status.message()));
  return spec;
}

// The member of the spec's oneof of that name; null: there is none.
const google::protobuf::FieldDescriptor* method_field(const std::string& name) {
  const auto* field = v1::FineTuningJobSpec::descriptor()->FindFieldByName(name);
  const auto* oneof = field ? field->containing_oneof() : nullptr;
  return oneof && oneof->name() == "method" ? field : nullptr;
}

Status apply_method(const SpecFlags& flags, v1::FineTuningJobSpec& spec) {
  std::string method = flags.method;
  std::replace(method.begin(), method.end(), '-', '_');
  // A spec file may have chosen another method; only an explicit flag changes it.
  // A job that goes on from an adapter has the adapter's method.
  const std::string& model = flags.model.empty() ? spec.model() : flags.model;
  const bool open = spec.method_case() == v1::FineTuningJobSpec::METHOD_NOT_SET;
  if (method.empty() && open && (!model.starts_with("ft:") || !flags.preset.empty()))
    method = "dex";
  if (!method.empty()) {
    const auto* field = method_field(method);
    if (!field) {
      return base::invalid_argument(
          "INVALID_FIELD", "--method \"" + flags.method + "\" is not one of " + method_names());
    }
    spec.GetReflection()->MutableMessage(&spec, field);
  }
  if (flags.preset.empty()) return {};
  if (spec.has_kvo_only()) {
    spec.mutable_kvo_only()->set_preset(flags.preset);
    return {};
  }
  if (!spec.has_dex()) {
    return base::invalid_argument(
        "UNUSED_FIELD",
        "--preset has no effect with " +
            (flags.method.empty() ? "the spec file's method" : "--method " + flags.method) +
            ": presets are for dex and kvo_only");
  }
  spec.mutable_dex()->set_preset(flags.preset);
  return {};
}

// Splits "path=value" at the first '='. A field of another method would change the method behind
// the user's back, since only one member of the oneof can be set.
Status apply_set(const std::string& text, v1::FineTuningJobSpec& spec) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return base::invalid_argument("INVALID_FIELD", "--set \"" + text + "\" is not path=value");
  }
  const std::string path = text.substr(0, equals);
  const auto* method = method_field(method_of(path));
  if (method && !spec.GetReflection()->HasField(spec, method)) {
    return base::invalid_argument(
        "UNUSED_FIELD", "--set " + path + " has no effect without --method " + method->name());
  }
  return set_field(spec, path, text.substr(equals + 1));
}

}  // namespace

std::string method_names() {
  std::string names;
  for (const auto* method : kMethods) names += (names.empty() ? "" : ", ") + std::string(method);
  return names;
}

std::string method_of(const std::string& path) {
  const std::string name = path.substr(0, path.find('.'));
  return method_field(name) ? name : "";
}

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
      {"early_stopping.enabled", flags.patience.empty() ? kFlagOff : kFlagOn},
      {"early_stopping.patience", flags.patience},
      {"watchdog.base_guard.kl_max", flags.kl_max},
  };
  for (const auto& [path, value] : fields) {
    if (!value.empty()) DEX_RETURN_IF_ERROR(set_field(spec, path, value));
  }
  for (const auto& pair : flags.metadata) DEX_RETURN_IF_ERROR(set_field(spec, "metadata", pair));
  for (const auto& text : flags.gates) {
    DEX_ASSIGN_OR_RETURN(*spec.add_gates(), parse_gate(text));
  }
  if (flags.hold) spec.set_auto_start(false);
  for (const auto& text : flags.sets) DEX_RETURN_IF_ERROR(apply_set(text, spec));
  return spec;
}

}  // namespace dex::cli
