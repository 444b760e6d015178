#include "scheduler/server/adapter_jobs.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "dex/internal/v1/worker.pb.h"
#include "scheduler/server/artefact_tar.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/request_key.h"
#include "scheduler/server/times.h"
#include "scheduler/store/alphabet.h"
#include "services/base/files.h"

namespace dex::server {

namespace {

constexpr int64_t kLongestAdapterJob_ms = 600'000;  // api.md §1, deadlines
constexpr int kAdapterJobPriority = 6;              // somebody sits and waits (head_previews.cc)
constexpr double kUsualAdapterJob_s = 20;           // its place in the queue, never a promise

// As a job's (core/check_spec.cc).
bool is_suffix(const std::string& text) {
  return text.size() <= 64 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
         });
}

base::Status check_import(const v1::ImportAdapterRequest::Header& header) {
  if (header.base_model().empty()) return missing("base_model");
  if (!is_suffix(header.suffix())) {
    return base::invalid_field("suffix", "must be 1 to 64 letters, digits, '.', '_' or '-', got '" +
                                             store::shown(header.suffix().substr(0, 64)) + "'");
  }
  if (!header.has_size_bytes()) return {};
  if (header.size_bytes() >= 0 && header.size_bytes() <= kLargestAdapterTar_bytes) return {};
  return base::bad_field("TOO_LARGE", "size_bytes",
                         "must be between 0 and " + std::to_string(kLargestAdapterTar_bytes) +
                             ", got " + std::to_string(header.size_bytes()));
}

base::Status check_export(const v1::ExportAdapterRequest& request) {
  if (request.adapter().empty()) return missing("adapter");
  if (request.kind() != v1::ExportAdapterRequest::KIND_FOLDED_SAFETENSORS) {
    return base::invalid_field("kind",
                               "must be KIND_FOLDED_SAFETENSORS; the adapter's own folder, which "
                               "is in PEFT's layout, is DownloadAdapter's");
  }
  if (!v1::ExportAdapterRequest::Dtype_IsValid(request.dtype()))
    return base::invalid_field("dtype", "is unknown; DTYPE_FP32 and DTYPE_BF16 are there");
  return {};
}

store::NewJob new_adapter_job(const std::string& id, const char* kind, const std::string& base) {
  store::NewJob job;
  job.id = id;
  job.kind = kind;
  job.base_model = base;
  job.priority = kAdapterJobPriority;
  job.max_fail = 1;
  job.max_crash = 1;
  job.cost_gpu_seconds = kUsualAdapterJob_s;
  job.deadline_ms = kLongestAdapterJob_ms;
  return job;
}

store::NewJob import_job(const std::string& tenant, const v1::ImportAdapterRequest::Header& header,
                         const std::string& id) {
  store::NewJob job = new_adapter_job(id, kAdapterImportKind, header.base_model());
  std::string suffix = header.suffix();
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  job.adapter =
      "ft:" + header.base_model() + ":" + tenant + ":" + suffix + ":" + id.substr(id.find('-') + 1);
  job.spec = header.SerializeAsString();
  job.queued_message = "The import is queued.";
  return job;
}

// How a job that made nothing ended, for whoever asked; `what` begins the sentence.
base::Status failure_of(const store::JobRecord& record, const std::string& what) {
  if (record.why_code == kAdapterDeletedCode) {
    v1::ExportAdapterRequest request;
    request.ParseFromString(record.spec);
    return base::not_found("RESOURCE_NOT_FOUND", what + ": " + request.adapter() +
                                                     " was deleted before a worker came to it")
        .with_metadata("resource_type", "adapter")
        .with_metadata("resource_name", request.adapter());
  }
  if (record.why_code == "adapter_mismatch")
    return base::failed_precondition("ADAPTER_MISMATCH", what + ": " + record.why);
  if (record.why_code == "not_foldable")
    return base::failed_precondition("NOT_FOLDABLE", record.why);
  if (record.why_code == "out_of_memory") {
    return base::failed_precondition("DOES_NOT_FIT",
                                     what + " in the worker's memory: " + record.why);
  }
  if (record.why_code == "deadline_exceeded") {
    return {base::Code::kDeadlineExceeded, "DEADLINE",
            "no worker had done it within 10 minutes; is one there that has the base model?"};
  }
  if (record.state == "CANCELLED")
    return {base::Code::kCancelled, "CLIENT_CANCELLED", "the job was cancelled"};
  return base::internal(what + ": " + record.why);
}

v1::Export export_view(const store::JobRecord& record) {
  v1::ExportAdapterRequest request;
  request.ParseFromString(record.spec);
  v1::Export view;
  view.set_id(record.id);
  view.set_adapter(request.adapter());
  *view.mutable_create_time() = timestamp(record.created_ms);
  if (!record.terminal()) {
    view.set_state(v1::Export::STATE_MAKING);
  } else if (record.state != "SUCCEEDED") {
    view.set_state(v1::Export::STATE_FAILED);
    view.set_error(failure_of(record, "The adapter can't be exported").message());
  } else {
    iv1::AttemptResult result;
    result.ParseFromString(record.result);
    view.set_state(v1::Export::STATE_READY);
    view.set_bytes(result.bytes());
    view.set_sha256(record.result_sha256);
    *view.mutable_certificate() = result.certificate();
  }
  return view;
}

}  // namespace

base::Status AdapterJobs::store_is_durable() const {
  return options_.durable ? store_keeps(options_.durable()) : base::Status();
}

base::Result<AdapterJobs::Begun> AdapterJobs::submit(const std::string& tenant,
                                                     const store::RequestKey& key,
                                                     store::NewJob job) {
  const std::string kind = job.kind;
  job.pool = options_.pool;
  store::JobRepository::Submission submission;
  submission.request = key;
  submission.jobs.push_back(std::move(job));
  const auto submitted = parts_.jobs.submit(tenant, submission);
  parts_.metrics.submitted(kind, submitted);
  DEX_RETURN_IF_ERROR(submitted.status());
  if (options_.changed) options_.changed();
  return Begun{submitted->ids.front(), submitted->replayed};
}

base::Result<AdapterJobs::Begun> AdapterJobs::begin_import(
    const auth::Principal& who, const v1::ImportAdapterRequest::Header& header,
    const UploadChunks& chunks) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersWrite));
  DEX_RETURN_IF_ERROR(check_import(header));
  DEX_RETURN_IF_ERROR(parts_.models.find(header.base_model()).status());
  DEX_RETURN_IF_ERROR(store_is_durable());
  DEX_ASSIGN_OR_RETURN(store::RequestKey key, identity_of(header, parts_.ids));
  const std::string& tenant = who.tenant();
  const std::string id = parts_.ids.make(kImportPrefix);
  DEX_ASSIGN_OR_RETURN(const auto folder, parts_.layout.absolute(DataLayout::job(tenant, id)));
  DEX_ASSIGN_OR_RETURN(const auto files,
                       parts_.layout.absolute(DataLayout::uploaded_adapter(tenant, id)));
  const auto drop = [&folder](const base::Status& status) {
    (void)base::remove_tree(folder).ok();
    return status;
  };
  const auto received = receive_adapter(
      files, header.has_size_bytes() ? std::optional(header.size_bytes()) : std::nullopt, chunks);
  if (!received.ok()) {
    parts_.metrics.submitted(kAdapterImportKind, "refused");
    return drop(received.status());
  }
  // It may have changed while the archive came in.
  if (const auto keeps = store_is_durable(); !keeps.ok()) return drop(keeps);
  key.digest += " " + *received;  // the same header with other bytes is another request
  auto begun = submit(tenant, key, import_job(tenant, header, id));
  // With the store away nobody knows whether the job is there; then the janitor decides.
  const bool unknown = begun.status().code() == base::Code::kUnavailable;
  if (!begun.ok() && !unknown) return drop(begun.status());
  if (begun.ok() && begun->replayed) (void)drop({}).ok();
  return begun;
}

base::Result<std::optional<store::JobRecord>> AdapterJobs::ended(const std::string& tenant,
                                                                 const std::string& id,
                                                                 const std::string& what) {
  using Ended = std::optional<store::JobRecord>;
  DEX_ASSIGN_OR_RETURN(auto record, parts_.jobs.get(tenant, id));
  if (record.state == "PAUSED") {  // nobody can resume what nobody sees
    const auto cancelled = parts_.jobs.cancel(tenant, id, "The workers' disks are full.");
    if (!cancelled.ok() && cancelled.status().code() == base::Code::kUnavailable)
      return cancelled.status();
    return base::Status(base::Code::kResourceExhausted, "STORAGE_FULL",
                        "the workers' disks are full: " + record.why);
  }
  if (!record.terminal()) return Ended();
  if (record.state != "SUCCEEDED") return failure_of(record, what);
  return Ended(std::move(record));
}

base::Result<std::optional<v1::Adapter>> AdapterJobs::look_import(const auth::Principal& who,
                                                                  const std::string& id) {
  DEX_ASSIGN_OR_RETURN(const auto record, ended(who.tenant(), id, "The adapter can't be imported"));
  if (!record) return std::optional<v1::Adapter>();
  DEX_ASSIGN_OR_RETURN(const auto adapter, parts_.adapters.get(who.tenant(), record->adapter));
  return std::optional<v1::Adapter>(adapter_view(adapter));
}

base::Result<AdapterJobs::Begun> AdapterJobs::begin_export(
    const auth::Principal& who, const v1::ExportAdapterRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersWrite));
  DEX_RETURN_IF_ERROR(check_export(request));
  const std::string& tenant = who.tenant();
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.adapters.get(tenant, request.adapter()));
  const v1::Adapter adapter = adapter_view(record);
  if (adapter.artifact_class() == "MODEL") {
    return base::failed_precondition(
        "NOT_FOLDABLE", request.adapter() + " is a whole model already; download it as it is");
  }
  DEX_RETURN_IF_ERROR(parts_.models.find(adapter.base_model()).status());
  DEX_RETURN_IF_ERROR(store_is_durable());
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  store::NewJob job =
      new_adapter_job(parts_.ids.make(kExportPrefix), kAdapterExportKind, adapter.base_model());
  job.spec = request.SerializeAsString();
  job.queued_message = "The export is queued.";
  return submit(tenant, key, std::move(job));
}

base::Result<std::optional<v1::Export>> AdapterJobs::look_export(const auth::Principal& who,
                                                                 const std::string& id) {
  DEX_ASSIGN_OR_RETURN(const auto record, ended(who.tenant(), id, "The adapter can't be exported"));
  if (!record) return std::optional<v1::Export>();
  return std::optional<v1::Export>(export_view(*record));
}

base::Result<store::JobRecord> AdapterJobs::export_record(const auth::Principal& who,
                                                          const std::string& id) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersRead));
  DEX_RETURN_IF_ERROR(check_job_id(id, kExportPrefix, "export"));
  return parts_.jobs.get(who.tenant(), id);
}

base::Result<v1::Export> AdapterJobs::get_export(const auth::Principal& who,
                                                 const std::string& id) {
  DEX_ASSIGN_OR_RETURN(const auto record, export_record(who, id));
  return export_view(record);
}

base::Status AdapterJobs::download_export(const auth::Principal& who, const std::string& id,
                                          const std::function<bool(std::string)>& sink) {
  DEX_ASSIGN_OR_RETURN(const auto record, export_record(who, id));
  if (record.state != "SUCCEEDED") {
    return base::failed_precondition("JOB_STATE_CONFLICT",
                                     "export " + id + " is not ready; GetExport says why");
  }
  DEX_ASSIGN_OR_RETURN(const std::filesystem::path folder,
                       parts_.layout.absolute(record.result_uri));
  std::error_code ignored;
  if (!std::filesystem::exists(folder, ignored)) {
    return base::not_found("RESOURCE_NOT_FOUND", "Export '" + id +
                                                     "' is gone: one is kept for a day. Export " +
                                                     export_view(record).adapter() + " again.")
        .with_metadata("resource_type", "export")
        .with_metadata("resource_name", id);
  }
  return send_artefact(folder, record.result_sha256, "The export's", sink);
}

}  // namespace dex::server
