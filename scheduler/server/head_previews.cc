#include "scheduler/server/head_previews.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "scheduler/core/resolve.h"
#include "scheduler/server/head_preview_view.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/request_key.h"
#include "scheduler/server/training_facts.h"
#include "services/base/files.h"

namespace dex::server {

namespace {

using Request = v1::PreviewHeadSelectionRequest;

constexpr int kMostTexts = 64;
constexpr size_t kLargestTexts = 1 << 20;
constexpr int64_t kLongestPreview_ms = 600'000;  // api.md §1, deadlines
// Somebody sits and waits; a job of the usual priority still runs before long (jobs.md §5).
constexpr int kPreviewPriority = 6;
// A preview trains nothing, so no choice of its may depend on how long a training would be.
constexpr uint32_t kUpdates = 1000;
constexpr double kUsual_s = 30;  // its place in the queue, never a promise

base::Status too_much(const std::string& reason, const std::string& what) {
  return base::Status(base::Code::kInvalidArgument, reason, "texts " + what)
      .with_violation("texts", what);
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

base::Status check_texts(const Request& request) {
  if (request.texts_size() > kMostTexts) {
    return too_much("VALUE_OUT_OF_RANGE", "may be " + std::to_string(kMostTexts) + ", got " +
                                              std::to_string(request.texts_size()) +
                                              "; upload more as a file");
  }
  size_t bytes = 0;
  for (int i = 0; i < request.texts_size(); ++i) {
    bytes += request.texts(i).size();
    if (is_blank(request.texts(i)))
      return base::invalid_field("texts[" + std::to_string(i) + "]", "is blank");
  }
  if (bytes <= kLargestTexts) return {};
  return too_much("TOO_LARGE", "may have 1 MiB together, got " + std::to_string(bytes) +
                                   " bytes; upload more as a file");
}

base::Status check_preview(const Request& request) {
  if (request.model().empty()) return missing("model");
  if (core::base_model_of(request.model()) != request.model())
    return base::invalid_field("model", "must be a base model: an adapter has its heads already");
  if (request.file().empty() && request.texts().empty()) {
    return base::Status(base::Code::kInvalidArgument, "MISSING_FIELD",
                        "file is missing: give the id of an uploaded file, or texts")
        .with_violation("file", "is missing");
  }
  if (!request.file().empty() && !request.texts().empty()) {
    return base::bad_field("CONFLICTING_FIELDS", "texts", "can't be given together with file");
  }
  // What acts on the training alone would be without effect, silently.
  const auto unused = [](const std::string& field) {
    return base::bad_field("UNUSED_FIELD", field, "has no effect on a preview");
  };
  if (request.head_selection().has_reselect_every_steps())
    return unused("head_selection.reselect_every_steps");
  if (request.head_selection().has_soft_floor()) return unused("head_selection.soft_floor");
  // It measures on the rows that it names itself.
  if (request.head_selection().calibration().has_file())
    return unused("head_selection.calibration.file");
  return check_texts(request);
}

core::DataFacts facts_of(const Request& request) {
  core::DataFacts facts;
  facts.format = v1::FILE_FORMAT_TEXT;
  facts.rows = request.texts_size();
  for (const std::string& text : request.texts()) {
    const auto tokens = static_cast<int64_t>(text.size() / 4 + 1);
    facts.tokens += tokens;
    facts.longest_row_tokens = std::max(facts.longest_row_tokens, tokens);
  }
  return facts;
}

// The job of which this shows the beginning.
v1::FineTuningJobSpec spec_of(const Request& request) {
  v1::FineTuningJobSpec spec;
  spec.set_model(request.model());
  spec.set_training_file(request.file().empty() ? "texts" : request.file());
  spec.set_seed(request.seed());
  if (request.file().empty()) spec.set_validation_split(0);
  auto& dex = *spec.mutable_dex();
  if (!request.preset().empty()) dex.set_preset(request.preset());
  if (request.has_head_selection()) *dex.mutable_head_selection() = request.head_selection();
  dex.set_allow_large_projection(true);  // the branch is not built here
  spec.mutable_hyperparameters()->set_max_steps(kUpdates);
  return spec;
}

// Fields of the job as the request names them.
std::string in_request_words(std::string text) {
  static const std::vector<std::pair<std::string, std::string>> kWords = {
      {"dex.head_selection", "head_selection"},
      {"dex.preset", "preset"},
      {"training_file", "file"}};
  for (const auto& [job, request] : kWords) {
    for (size_t at = 0; (at = text.find(job, at)) != std::string::npos; at += request.size())
      text.replace(at, job.size(), request);
  }
  return text;
}

base::Status in_request_words(const base::Status& status) {
  base::Status out(status.code(), status.reason(), in_request_words(status.message()));
  for (const auto& violation : status.violations()) {
    out = std::move(out).with_violation(in_request_words(violation.field),
                                        in_request_words(violation.description));
  }
  for (const auto& [key, value] : status.metadata()) out = std::move(out).with_metadata(key, value);
  return out;
}

// How a preview that has no report ended, for whoever asked.
base::Status end_of(const store::JobRecord& record) {
  const v1::JobError error = job_view(record).error();
  const bool texts = record.files.empty();
  if (error.code() == "invalid_training_file") {
    if (texts) return base::invalid_field("texts", error.message());
    return base::failed_precondition("FILE_INVALID", "file: " + error.message())
        .with_violation("file", error.message());
  }
  if (error.code() == "invalid_hyperparameter") {
    const std::string field = error.param().empty() ? "head_selection" : error.param();
    return in_request_words(base::invalid_field(field, error.message()));
  }
  if (error.code() == "out_of_memory") {
    return base::failed_precondition(
        "DOES_NOT_FIT", "The heads can't be measured in the worker's memory: " + error.message() +
                            "; lower calibration.seq_length");
  }
  if (error.code() == "deadline_exceeded") {
    return {base::Code::kDeadlineExceeded, "DEADLINE",
            "no worker had measured the heads within 10 minutes; see the queue, or measure fewer "
            "rows (calibration.n_sequences)"};
  }
  if (record.state == "CANCELLED")
    return {base::Code::kCancelled, "CLIENT_CANCELLED", "the preview was cancelled"};
  return base::internal("the heads could not be measured: " + error.message());
}

}  // namespace

base::Status HeadPreviews::write_texts(const std::string& tenant, const std::string& id,
                                       const Request& request) const {
  std::string rows;
  for (const std::string& text : request.texts()) {
    const nlohmann::json row = {{"text", text}};
    rows += row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  const auto path = parts_.layout.absolute(DataLayout::texts(tenant, id));
  DEX_RETURN_IF_ERROR(path.status());
  DEX_RETURN_IF_ERROR(base::make_directories(path->parent_path()));
  return base::write_file_atomically(*path, rows);
}

base::Result<store::NewJob> HeadPreviews::new_job(const std::string& tenant,
                                                  const Request& request) {
  DEX_RETURN_IF_ERROR(check_preview(request));
  core::ResolveInput input;
  DEX_ASSIGN_OR_RETURN(input.model, parts_.models.find(request.model()));
  input.spec = spec_of(request);
  input.default_pool = options_.pool;
  input.training = facts_of(request);
  if (!request.file().empty()) {
    DEX_ASSIGN_OR_RETURN(input.training,
                         training_facts(parts_.files, tenant, request.file(), "file"));
  }
  const auto resolved = core::resolve(input);
  if (!resolved.ok()) return in_request_words(resolved.status());
  store::NewJob job;
  job.id = parts_.ids.make("heads-");
  job.kind = kHeadSelectionKind;
  job.pool = resolved->config.spec().pool();
  job.base_model = request.model();
  job.priority = kPreviewPriority;
  job.max_fail = 0;  // whoever waits may try again
  job.max_crash = 1;
  job.cost_gpu_seconds = kUsual_s;
  job.deadline_ms = kLongestPreview_ms;
  job.spec = fixed_part(resolved->config).SerializeAsString();
  if (!request.file().empty()) job.files = {request.file()};
  job.queued_message = "The preview is queued.";
  return job;
}

base::Result<std::string> HeadPreviews::begin(const auth::Principal& who, const Request& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsWrite));
  const std::string& tenant = who.tenant();
  auto job = new_job(tenant, request);
  if (!job.ok()) {
    parts_.metrics.submitted(kHeadSelectionKind, "refused");
    return job.status();
  }
  const std::string id = job->id;
  if (request.file().empty()) DEX_RETURN_IF_ERROR(write_texts(tenant, id, request));
  store::JobRepository::Submission submission;
  submission.request = {parts_.ids.next(), message_sha256(request)};  // the script may come twice
  submission.jobs.push_back(std::move(job).value());
  const auto submitted = parts_.jobs.submit(tenant, submission);
  parts_.metrics.submitted(kHeadSelectionKind, submitted);
  DEX_RETURN_IF_ERROR(submitted.status());
  if (options_.changed) options_.changed();
  return id;
}

base::Result<std::optional<v1::HeadSelectionReport>> HeadPreviews::look(const auth::Principal& who,
                                                                        const std::string& id,
                                                                        bool with_picture) {
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), id));
  if (record.state == "PAUSED") {  // nobody can resume what nobody sees
    abandon(who, id);
    return base::Status(base::Code::kResourceExhausted, "STORAGE_FULL",
                        "the workers' disks are full: " + record.why);
  }
  if (!record.terminal()) return std::optional<v1::HeadSelectionReport>();
  if (record.state != "SUCCEEDED") return end_of(record);
  DEX_ASSIGN_OR_RETURN(auto report, head_selection_report(record, parts_.layout, with_picture));
  return std::optional<v1::HeadSelectionReport>(std::move(report));
}

bool HeadPreviews::abandon(const auth::Principal& who, const std::string& id) {
  const auto cancelled =
      parts_.jobs.cancel(who.tenant(), id, "Whoever asked for the preview has gone.");
  if (cancelled.ok() && cancelled->state == "CANCELLED")
    parts_.metrics.job_finished(options_.pool, kHeadSelectionKind, "cancelled");
  if (cancelled.ok() && options_.changed) options_.changed();
  return cancelled.status().code() != base::Code::kUnavailable;
}

}  // namespace dex::server
