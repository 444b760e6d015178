#include "scheduler/core/sweep.h"

#include <google/protobuf/util/json_util.h>

#include <sstream>
#include <string_view>
#include <utility>

#include "scheduler/core/fields.h"
#include "services/base/nearest.h"

namespace dex::core {

namespace {

using dex::v1::BatchCreateFineTuningJobsRequest;
using dex::v1::FineTuningJobSpec;
using Axis = BatchCreateFineTuningJobsRequest::Axis;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  std::istringstream stream(path);
  for (std::string part; std::getline(stream, part, '.');) parts.push_back(part);
  return parts;
}

std::string axis_field(int index, const char* name) {
  return "sweep[" + std::to_string(index) + "]." + name;
}

// Each part but the last must be a message.
base::Status check_path(const std::string& path, const std::string& field) {
  const Descriptor* type = FineTuningJobSpec::descriptor();
  const auto parts = parts_of(path);
  if (parts.empty()) return base::bad_field("MISSING_FIELD", field, "is missing");
  if (path.back() == '.') return base::bad_field("UNKNOWN_FIELD", field, "ends with a dot");
  for (size_t i = 0; i < parts.size(); ++i) {
    const FieldDescriptor* found = type == nullptr ? nullptr : type->FindFieldByName(parts[i]);
    if (found == nullptr) {
      std::vector<std::string_view> names;
      for (int n = 0; type != nullptr && n < type->field_count(); ++n)
        names.emplace_back(type->field(n)->name());
      const std::string_view meant = base::nearest(parts[i], names);
      return base::bad_field(
          "UNKNOWN_FIELD", field,
          "names no field of a job: '" + path.substr(0, 128) + "' at '" + parts[i].substr(0, 64) +
              "'" + (meant.empty() ? "" : "; did you mean '" + std::string(meant) + "'?"));
    }
    const bool inside = !found->is_repeated() && found->message_type() != nullptr;
    type = inside ? found->message_type() : nullptr;
  }
  return {};
}

bool overlap(const std::string& a, const std::string& b) {
  return a == b || a.starts_with(b + ".") || b.starts_with(a + ".");
}

base::Status check_axes(const BatchCreateFineTuningJobsRequest& request) {
  size_t jobs = 1;
  for (int i = 0; i < request.sweep_size(); ++i) {
    const Axis& axis = request.sweep(i);
    DEX_RETURN_IF_ERROR(check_path(axis.path(), axis_field(i, "path")));
    for (int before = 0; before < i; ++before) {
      if (!overlap(axis.path(), request.sweep(before).path())) continue;
      return base::bad_field(
          "CONFLICTING_FIELDS", axis_field(i, "path"),
          "sets what sweep[" + std::to_string(before) + "] sets: '" + axis.path() + "'");
    }
    if (axis.values().empty())
      return base::bad_field("MISSING_FIELD", axis_field(i, "values"), "is empty");
    jobs *= static_cast<size_t>(axis.values_size());
    if (jobs > kMostSweptJobs) {
      return base::bad_field("VALUE_OUT_OF_RANGE", "sweep",
                             "may make at most " + std::to_string(kMostSweptJobs) +
                                 " jobs, the values up to '" + axis.path() + "' make " +
                                 std::to_string(jobs));
    }
  }
  return {};
}

// {"hyperparameters": {"learning_rate": 1e-5}}
std::string nested(const std::string& path, const std::string& json) {
  std::string text, end;
  for (const std::string& part : parts_of(path)) {
    text += "{\"" + part + "\":";
    end += "}";
  }
  return text + json + end;
}

base::Status set_value(const Axis& axis, int index, int number, SweptSpec& job) {
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(axis.values(number), &json);
  FineTuningJobSpec patch;
  const auto read =
      printed.ok() ? google::protobuf::util::JsonStringToMessage(nested(axis.path(), json), &patch)
                   : printed;
  if (!read.ok()) {
    const std::string place = axis_field(index, "values") + "[" + std::to_string(number) + "]";
    return base::invalid_field(place,
                               place + " can't be " + axis.path() + ": " + json.substr(0, 128));
  }
  if (has_field(job.spec, axis.path())) clear_field(job.spec, axis.path());
  job.spec.MergeFrom(patch);
  job.point += (job.point.empty() ? "" : ", ") + axis.path() + "=" + json;
  return {};
}

base::Result<std::vector<SweptSpec>> grid(const BatchCreateFineTuningJobsRequest& request) {
  DEX_RETURN_IF_ERROR(check_axes(request));
  std::vector<SweptSpec> jobs = {{request.spec(), ""}};
  for (int i = 0; i < request.sweep_size(); ++i) {
    std::vector<SweptSpec> more;
    for (const SweptSpec& so_far : jobs) {
      for (int number = 0; number < request.sweep(i).values_size(); ++number) {
        more.push_back(so_far);
        DEX_RETURN_IF_ERROR(set_value(request.sweep(i), i, number, more.back()));
      }
    }
    jobs = std::move(more);
  }
  return jobs;
}

}  // namespace

base::Result<std::vector<SweptSpec>> swept_specs(const BatchCreateFineTuningJobsRequest& request) {
  if (request.specs_size() == 0) {
    if (!request.has_spec())
      return base::bad_field("MISSING_FIELD", "spec", "is missing, and so are specs");
    if (request.sweep_size() == 0)
      return base::bad_field("MISSING_FIELD", "sweep",
                             "is missing: one job is CreateFineTuningJob's");
    return grid(request);
  }
  if (request.has_spec() || request.sweep_size() > 0)
    return base::bad_field("CONFLICTING_FIELDS", "specs", "does not go with spec and sweep");
  if (request.specs_size() > kMostSweptJobs) {
    return base::bad_field("VALUE_OUT_OF_RANGE", "specs",
                           "may be at most " + std::to_string(kMostSweptJobs) + " jobs, got " +
                               std::to_string(request.specs_size()));
  }
  std::vector<SweptSpec> jobs;
  for (const FineTuningJobSpec& spec : request.specs()) jobs.push_back({spec, ""});
  return jobs;
}

}  // namespace dex::core
