#include "scheduler/server/job_batches.h"

#include <utility>

#include "scheduler/core/sweep.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"

namespace dex::server {

namespace {
constexpr const char* kSweepKey = "sweep_id";  // of metadata
}  // namespace

base::Result<store::JobRepository::Submission> JobBatches::checked(
    const auth::Principal& who, const v1::BatchCreateFineTuningJobsRequest& request,
    const std::string& sweep_id) {
  DEX_ASSIGN_OR_RETURN(auto swept, core::swept_specs(request));
  store::JobRepository::Submission submission;
  for (auto& [spec, point] : swept) {
    const size_t number = submission.jobs.size() + 1;
    const std::string place = "job " + std::to_string(number) + " of " +
                              std::to_string(swept.size()) +
                              (point.empty() ? "" : " (" + point + ")");
    auto& metadata = *spec.mutable_metadata();
    if (metadata.contains(kSweepKey)) {
      return base::bad_field("CONFLICTING_FIELDS", "metadata.sweep_id", "is for the server to set")
          .with_prefix(place);
    }
    metadata[kSweepKey] = sweep_id;
    auto job = parts_.logic.checked_job(who, spec);
    if (!job.ok()) return job.status().with_prefix(place);
    submission.jobs.push_back(std::move(job).value());
  }
  return submission;
}

base::Result<v1::BatchCreateFineTuningJobsResponse> JobBatches::read(
    const std::string& tenant, const std::vector<std::string>& ids) {
  v1::BatchCreateFineTuningJobsResponse response;
  for (const std::string& id : ids) {
    DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(tenant, id));
    *response.add_jobs() = job_view(record);
  }
  if (response.jobs_size() > 0) {
    // Of the spec: what the job shows may have been updated since.
    const auto& metadata = response.jobs(0).effective_config().spec().metadata();
    const auto found = metadata.find(kSweepKey);
    if (found != metadata.end()) response.set_sweep_id(found->second);
  }
  return response;
}

base::Result<Answer<v1::BatchCreateFineTuningJobsResponse>> JobBatches::create(
    const auth::Principal& who, const v1::BatchCreateFineTuningJobsRequest& request) {
  using Reply = Answer<v1::BatchCreateFineTuningJobsResponse>;
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsWrite));
  const std::string& tenant = who.tenant();
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  // As create: a repeat gets the first call's jobs whatever has happened since.
  if (!request.validate_only() && !request.request_id().empty()) {
    DEX_ASSIGN_OR_RETURN(const auto ids, parts_.store.made_by(tenant, key));
    if (!ids.empty()) {
      parts_.metrics.submitted(kFineTuningKind, "replayed");
      DEX_ASSIGN_OR_RETURN(auto response, read(tenant, ids));
      return Reply{std::move(response), true};
    }
  }
  const std::string sweep_id = parts_.ids.make("sweep-");
  auto submission = checked(who, request, sweep_id);
  if (!submission.ok()) {
    parts_.metrics.submitted(kFineTuningKind, "refused");
    return submission.status();
  }
  if (request.validate_only()) {
    Reply resolved;
    for (const store::NewJob& job : submission->jobs)
      resolved.reply.add_jobs()->ParseFromString(job.spec);
    return resolved;
  }
  if (options_.durable) DEX_RETURN_IF_ERROR(store_keeps(options_.durable()));
  submission->request = key;
  const auto submitted = parts_.jobs.submit(tenant, *submission);
  parts_.metrics.submitted(kFineTuningKind, submitted);
  DEX_RETURN_IF_ERROR(submitted.status());
  if (options_.changed) options_.changed();
  DEX_ASSIGN_OR_RETURN(auto response, read(tenant, submitted->ids));
  return Reply{std::move(response), submitted->replayed};
}

}  // namespace dex::server
