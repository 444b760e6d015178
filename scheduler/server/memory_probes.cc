#include "scheduler/server/memory_probes.h"

#include <algorithm>
#include <utility>

#include "dex/internal/v1/worker.pb.h"
#include "scheduler/core/memory_fit.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/request_key.h"

namespace dex::server {

namespace {

constexpr int64_t kLongestProbe_ms = 300'000;  // api.md §1, deadlines
// Somebody sits and waits; a job of the usual priority still runs before long (jobs.md §5).
constexpr int kProbePriority = 6;
constexpr double kUsualProbe_s = 60;  // its place in the queue, never a promise

// An estimate of a job that a worker's memory did not suffice for.
v1::Estimate too_large(const FineTuningJobs::Plan& plan, const v1::JobError& error) {
  v1::Estimate out = plan.estimate;
  const auto& failed = error.out_of_memory();
  out.set_method(v1::Estimate::METHOD_PROBE);
  out.set_fits(false);
  out.set_allowed_to_proceed(false);
  out.set_peak_host_memory_bytes(
      std::max(out.peak_host_memory_bytes(), failed.peak_memory_bytes()));
  *out.mutable_nearest_fit() = failed.nearest_fit();
  out.add_blockers("a worker tried: " + error.message());
  return out;
}

// How a probe ended that says nothing of memory.
base::Status failure_of(const store::JobRecord& record, const v1::JobError& error) {
  if (error.code() == "invalid_training_file") {
    return base::failed_precondition("FILE_INVALID", "training_file: " + error.message())
        .with_violation("training_file", error.message());
  }
  if (error.code() == "invalid_hyperparameter")
    return base::invalid_field(error.param().empty() ? "spec" : error.param(), error.message());
  if (error.code() == "deadline_exceeded") {
    return {base::Code::kDeadlineExceeded, "DEADLINE",
            "no worker had done an update within 5 minutes; see the queue, or ask for "
            "METHOD_FORMULA"};
  }
  if (record.state == "CANCELLED")
    return {base::Code::kCancelled, "CLIENT_CANCELLED", "the probe was cancelled"};
  return base::internal("the update could not be done: " + error.message());
}

}  // namespace

base::Result<store::NewJob> MemoryProbes::new_job(const std::string& tenant,
                                                  const FineTuningJobs::Plan& plan) {
  DEX_ASSIGN_OR_RETURN(auto job, parts_.planner.new_job(tenant, plan));
  job.id = parts_.ids.make("probe-");
  job.kind = kProbeKind;
  job.adapter = "";
  job.priority = kProbePriority;
  job.max_fail = 0;  // whoever waits may try again
  // What the kernel ends for want of memory looks like a crash: one is enough.
  job.max_crash = 0;
  job.cost_gpu_seconds = kUsualProbe_s;
  job.deadline_ms = kLongestProbe_ms;
  job.queued_message = "The probe is queued.";
  return job;
}

base::Result<MemoryProbes::Begun> MemoryProbes::begin(
    const auth::Principal& who, const v1::EstimateFineTuningJobRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsWrite));
  const std::string& tenant = who.tenant();
  auto plan = parts_.planner.plan(tenant, request.spec());
  if (!plan.ok()) {
    parts_.metrics.submitted(kProbeKind, "refused");
    return plan.status();
  }
  Begun begun{"", std::move(plan).value()};
  if (!begun.plan.estimate.allowed_to_proceed()) return begun;
  DEX_ASSIGN_OR_RETURN(auto job, new_job(tenant, begun.plan));
  begun.id = job.id;
  store::JobRepository::Submission submission;
  submission.request = {parts_.ids.next(), message_sha256(request)};  // the script may come twice
  submission.jobs.push_back(std::move(job));
  const auto submitted = parts_.jobs.submit(tenant, submission);
  parts_.metrics.submitted(kProbeKind, submitted);
  DEX_RETURN_IF_ERROR(submitted.status());
  if (options_.changed) options_.changed();
  return begun;
}

base::Result<std::optional<v1::Estimate>> MemoryProbes::look(const auth::Principal& who,
                                                             const Begun& begun) {
  if (begun.id.empty()) return std::optional<v1::Estimate>(begun.plan.estimate);
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), begun.id));
  if (record.state == "PAUSED") {  // nobody can resume what nobody sees
    abandon(who, begun);
    return base::Status(base::Code::kResourceExhausted, "STORAGE_FULL",
                        "the workers' disks are full: " + record.why);
  }
  if (!record.terminal()) return std::optional<v1::Estimate>();
  if (record.state == "SUCCEEDED") {
    iv1::AttemptResult result;
    if (!result.ParseFromString(record.result) || !result.has_memory_probe())
      return base::internal("the worker did not say what it measured");
    return std::optional<v1::Estimate>(core::probed_estimate(
        begun.plan.resolved, begun.plan.model, begun.plan.device, result.memory_probe()));
  }
  const v1::JobError error = job_view(record).error();
  if (error.code() == "out_of_memory")
    return std::optional<v1::Estimate>(too_large(begun.plan, error));
  return failure_of(record, error);
}

bool MemoryProbes::abandon(const auth::Principal& who, const Begun& begun) {
  if (begun.id.empty()) return true;
  const auto cancelled =
      parts_.jobs.cancel(who.tenant(), begun.id, "Whoever asked for the probe has gone.");
  if (cancelled.ok() && cancelled->state == "CANCELLED")
    parts_.metrics.job_finished(begun.plan.resolved.config.spec().pool(), kProbeKind, "cancelled");
  if (cancelled.ok() && options_.changed) options_.changed();
  return cancelled.status().code() != base::Code::kUnavailable;
}

}  // namespace dex::server
