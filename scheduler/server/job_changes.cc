#include "scheduler/server/job_changes.h"

#include <cmath>

#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/leftovers.h"
#include "scheduler/server/times.h"
#include "scheduler/store/refusals.h"

namespace dex::server {

namespace {

constexpr uint32_t kHighestPriority = 9;
constexpr int kMostPairs = 16;
constexpr size_t kLongestKey = 64, kLongestValue = 512;

base::Status check_job(const auth::Principal& who, auth::Scope scope, const std::string& id) {
  DEX_RETURN_IF_ERROR(auth::require(who, scope));
  return check_job_id(id, "ftjob-", "job");
}

// As of a spec (core/check_spec.cc).
base::Status check_pairs(const v1::UpdateFineTuningJobRequest& request) {
  if (request.metadata_size() > kMostPairs) {
    return base::bad_field(
        "TOO_LARGE", "metadata",
        "has " + std::to_string(request.metadata_size()) + " pairs, 16 are allowed");
  }
  for (const auto& [key, value] : request.metadata()) {
    if (key.size() > kLongestKey || value.size() > kLongestValue) {
      return base::bad_field("TOO_LARGE", "metadata." + key.substr(0, kLongestKey),
                             "key ≤ 64 and value ≤ 512 characters");
    }
  }
  if (request.clear_metadata() && request.metadata_size() > 0) {
    return base::Status(base::Code::kInvalidArgument, "CONFLICTING_FIELDS",
                        "clear_metadata and metadata exclude each other")
        .with_violation("clear_metadata", "excludes metadata");
  }
  return {};
}

base::Status check_priority(const auth::Principal& who,
                            const v1::UpdateFineTuningJobRequest& request) {
  if (!request.has_priority()) return {};
  if (request.priority() > kHighestPriority)
    return base::bad_field("VALUE_OUT_OF_RANGE", "priority", "must be 0 to 9");
  return check_priority_scope(who, request.priority());
}

}  // namespace

JobChanges::JobAnswer JobChanges::answer(
    const auth::Principal& who, const std::string& id,
    const base::Result<store::JobRepository::Changed>& changed) {
  DEX_RETURN_IF_ERROR(changed.status());
  if (changed_) changed_();
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), id));
  return Answer<v1::FineTuningJob>{job_view(record), changed->replayed};
}

JobChanges::JobAnswer JobChanges::pause(const auth::Principal& who,
                                        const v1::PauseFineTuningJobRequest& request) {
  DEX_RETURN_IF_ERROR(check_job(who, auth::Scope::kJobsWrite, request.id()));
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  return answer(who, request.id(), parts_.jobs.pause(who.tenant(), request.id(), key));
}

JobChanges::JobAnswer JobChanges::resume(const auth::Principal& who,
                                         const v1::ResumeFineTuningJobRequest& request) {
  DEX_RETURN_IF_ERROR(check_job(who, auth::Scope::kJobsWrite, request.id()));
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  return answer(who, request.id(), parts_.jobs.resume(who.tenant(), request.id(), key));
}

JobChanges::JobAnswer JobChanges::update(const auth::Principal& who,
                                         const v1::UpdateFineTuningJobRequest& request) {
  DEX_RETURN_IF_ERROR(check_job(who, auth::Scope::kJobsWrite, request.id()));
  DEX_RETURN_IF_ERROR(check_priority(who, request));
  DEX_RETURN_IF_ERROR(check_pairs(request));
  const bool with_metadata = request.metadata_size() > 0 || request.clear_metadata();
  if (!request.has_priority() && !request.has_display_name() && !with_metadata)
    return missing("priority, display_name or metadata");
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  store::JobRepository::Update update;
  update.etag = request.etag();
  if (request.has_priority()) update.priority = static_cast<int>(request.priority());
  if (request.has_display_name()) update.name = request.display_name();
  if (with_metadata) {
    v1::FineTuningJob pairs;
    *pairs.mutable_metadata() = request.metadata();
    update.metadata = pairs.SerializeAsString();
  }
  return answer(who, request.id(), parts_.jobs.update(who.tenant(), request.id(), update, key));
}

JobChanges::JobAnswer JobChanges::redrive(const auth::Principal& who,
                                          const v1::RedriveFineTuningJobRequest& request) {
  DEX_RETURN_IF_ERROR(check_job(who, auth::Scope::kAdmin, request.id()));
  DEX_ASSIGN_OR_RETURN(const auto operation, identity_of(request, parts_.ids));
  constexpr double kLongestDeadline = 10.0 * 365 * 24 * 3600;
  const double seconds = request.deadline_seconds();
  if (!(seconds >= 0 && seconds <= kLongestDeadline))
    return base::bad_field("VALUE_OUT_OF_RANGE", "deadline_seconds",
                           "must be 0 (none) to ten years");
  const auto deadline_ms = static_cast<int64_t>(std::ceil(seconds * 1000));
  return answer(who, request.id(),
                parts_.jobs.redrive(who.tenant(), request.id(), operation, deadline_ms));
}

base::Result<Answer<v1::DeleteFineTuningJobResponse>> JobChanges::remove(
    const auth::Principal& who, const v1::DeleteFineTuningJobRequest& request) {
  using Deleted = Answer<v1::DeleteFineTuningJobResponse>;
  DEX_RETURN_IF_ERROR(check_job(who, auth::Scope::kJobsWrite, request.id()));
  if (request.delete_adapter())
    DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdaptersWrite));
  const std::string& tenant = who.tenant();
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  v1::DeleteFineTuningJobResponse response;
  response.set_id(request.id());
  DEX_ASSIGN_OR_RETURN(const auto made, parts_.store.made_by(tenant, key));
  if (!made.empty()) return Deleted{response, true};

  DEX_ASSIGN_OR_RETURN(const auto job, parts_.jobs.get(tenant, request.id()));
  if (!job.terminal()) return store::state_conflict(job.id, job.state);
  if (request.delete_adapter() && !job.adapter.empty()) {
    // First, because it may be refused; a job without an adapter has none to be missed.
    const auto removed = parts_.adapters.remove(tenant, job.adapter);
    if (!removed.ok() && removed.status().code() != base::Code::kNotFound) return removed.status();
  }
  DEX_ASSIGN_OR_RETURN(const bool replayed,
                       delete_ended_job(parts_.layout, parts_.jobs, parts_.adapters, job, key));
  if (changed_) changed_();
  return Deleted{response, replayed};
}

base::Result<store::JobRepository::Asked> JobChanges::ask_checkpoint(
    const auth::Principal& who, const v1::CreateCheckpointRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsWrite));
  if (request.job().empty()) return missing("job");
  DEX_RETURN_IF_ERROR(check_job_id(request.job(), "ftjob-", "job"));
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  return parts_.jobs.ask_checkpoint(who.tenant(), request.job(), parts_.ids.make("ftckpt-"), key);
}

base::Result<std::optional<v1::Checkpoint>> JobChanges::checkpoint(
    const auth::Principal& who, const std::string& job, const std::string& checkpoint_id) {
  using Asked = store::JobRepository::AskedCheckpoint;
  DEX_ASSIGN_OR_RETURN(const auto asked,
                       parts_.jobs.asked_checkpoint(who.tenant(), job, checkpoint_id));
  if (asked.state == Asked::State::kPending) return std::optional<v1::Checkpoint>();
  if (asked.state == Asked::State::kNone) {
    return base::failed_precondition(
        "JOB_STATE_CONFLICT", "The job '" + job + "' ended before the checkpoint was written.");
  }
  v1::Checkpoint checkpoint;
  checkpoint.set_id(checkpoint_id);
  checkpoint.set_job(job);
  checkpoint.set_type(v1::Checkpoint::TYPE_TRAINING);
  checkpoint.set_state(v1::Checkpoint::STATE_READY);
  checkpoint.set_step(static_cast<uint32_t>(asked.checkpoint.step));
  checkpoint.set_sha256(asked.checkpoint.manifest_sha256);
  checkpoint.set_verified(true);  // a trainer offers none that it has not read back
  *checkpoint.mutable_create_time() = timestamp(asked.at_ms);
  return std::optional<v1::Checkpoint>(std::move(checkpoint));
}

}  // namespace dex::server
