#include "scheduler/server/fine_tuning_jobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "proto/gate_tasks.h"
#include "proto/worker_features.h"
#include "scheduler/core/gate_tasks.h"
#include "scheduler/server/checkpoint_list.h"
#include "scheduler/server/file_view.h"
#include "scheduler/server/head_preview_view.h"
#include "scheduler/server/job_filter.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/page.h"
#include "scheduler/server/training_facts.h"
#include "services/base/files.h"
#include "services/base/sha256.h"

namespace dex::server {

namespace {

constexpr size_t kLargestSpecBytes = 32 << 10;
constexpr int kMostLookedAt = 1000;
constexpr int kMostGatesLookedAt = 16;  // more are refused for their number

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Of a resolved spec: the one that it goes on from, and those that its gates compare with, without
// which the training would end with a gate that can't be measured.
std::vector<std::string> needed_adapters(const v1::FineTuningJobSpec& spec) {
  std::set<std::string> adapters;
  if (core::goes_on(spec)) adapters.insert(spec.model());
  for (const v1::Gate& gate : spec.gates()) {
    if (proto::compares_with_other(gate)) adapters.insert(gate.adapter());
  }
  return {adapters.begin(), adapters.end()};
}

}  // namespace

base::Result<core::StartAdapter> FineTuningJobs::start_adapter(const std::string& tenant,
                                                               const std::string& id,
                                                               const v1::Model& model) {
  auto record = parts_.adapters.get(tenant, id);
  if (!record.ok())
    return base::Status(record.status()).with_violation("model", record.status().message());
  const v1::Adapter adapter = adapter_view(*record);
  // The operator's list need not name a hash; then the worker compares alone.
  if (!model.weights_sha256().empty() && adapter.base_weights_sha256() != model.weights_sha256()) {
    return base::failed_precondition("ADAPTER_MISMATCH", "The job can't go on from '" + id +
                                                             "': it was made on other weights of " +
                                                             model.name() + " than there are now")
        .with_violation("model", "was made on other weights of its base");
  }
  core::StartAdapter start{id, {}, std::nullopt};
  DEX_ASSIGN_OR_RETURN(start.spec, maker_of(tenant, *record, adapter));
  // Of a layer that is adapted whatever the first one is; a λ that is not learned is the same in
  // all.
  if (const auto& layers = adapter.branch_effect().per_layer(); !layers.empty())
    start.lambda = layers.Get(layers.size() - 1).lambda();
  return start;
}

base::Result<v1::FineTuningJobSpec> FineTuningJobs::maker_of(const std::string& tenant,
                                                             const store::AdapterRecord& record,
                                                             const v1::Adapter& adapter) {
  if (adapter.origin() != v1::Adapter::ORIGIN_IMPORTED) {
    DEX_ASSIGN_OR_RETURN(const std::string stored, stored_spec(tenant, record.job));
    return effective_spec(stored);
  }
  if (auto made = made_as(record)) return std::move(*made);
  const std::string what = "gives its linears ranks or layers that no job's LoRA has";
  return base::failed_precondition("ADAPTER_MISMATCH",
                                   "The job can't go on from '" + record.id + "': it " + what)
      .with_violation("model", what);
}

base::Result<std::string> FineTuningJobs::stored_spec(const std::string& tenant,
                                                      const std::string& job) {
  const auto record = parts_.jobs.get(tenant, job);
  if (record.ok()) return record->spec;
  if (record.status().code() != base::Code::kNotFound) return record.status();
  return base::read_file(parts_.layout.kept_spec(tenant, job), kLargestSpecBytes);
}

base::Result<core::TaskFiles> FineTuningJobs::gate_files(const std::string& tenant,
                                                         const v1::FineTuningJobSpec& spec) {
  core::TaskFiles files;
  if (spec.gates_size() > kMostGatesLookedAt) return files;
  for (const auto& [field, id] : core::gate_files(spec)) {
    if (id.empty()) continue;
    const auto record = parts_.files.get(tenant, id);
    if (!record.ok())
      return base::Status(record.status()).with_violation(field, record.status().message());
    DEX_RETURN_IF_ERROR(require_ready(*record, field));
    files[id] = {record->filename, record->bytes};
  }
  return files;
}

core::DeviceFacts FineTuningJobs::device() {
  core::DeviceFacts facts = options_.device;
  if (facts.memory_bytes > 0) return facts;
  const auto workers = parts_.workers.workers();
  if (!workers.ok()) return facts;
  for (const auto& worker : *workers) {
    iv1::RegisterRequest registered;
    if (worker.state != "up" || !registered.ParseFromString(worker.info)) continue;
    for (const auto& device : registered.devices()) {
      facts.memory_bytes = std::max(facts.memory_bytes, device.memory_bytes());
    }
  }
  return facts;
}

base::Result<FineTuningJobs::Plan> FineTuningJobs::plan(const std::string& tenant,
                                                        const v1::FineTuningJobSpec& spec) {
  if (spec.model().empty()) return missing("spec.model");
  if (spec.training_file().empty()) return missing("spec.training_file");
  DEX_ASSIGN_OR_RETURN(const v1::Model model,
                       parts_.models.find(core::base_model_of(spec.model())));
  core::ResolveInput input;
  input.spec = spec;
  input.model = model;
  input.default_pool = options_.default_pool;
  if (core::goes_on(spec)) {
    DEX_ASSIGN_OR_RETURN(input.start, start_adapter(tenant, spec.model(), model));
  }
  DEX_ASSIGN_OR_RETURN(input.training,
                       training_facts(parts_.files, tenant, spec.training_file(), "training_file"));
  if (spec.has_validation_file()) {
    DEX_ASSIGN_OR_RETURN(
        input.validation,
        training_facts(parts_.files, tenant, spec.validation_file(), "validation_file"));
  }
  const auto& guard = spec.watchdog().base_guard();
  if (guard.has_probe_file()) {
    DEX_RETURN_IF_ERROR(
        training_facts(parts_.files, tenant, guard.probe_file(), "watchdog.base_guard.probe_file")
            .status());
  }
  const auto& calibration = spec.dex().head_selection().calibration();
  if (calibration.has_file()) {
    DEX_RETURN_IF_ERROR(training_facts(parts_.files, tenant, calibration.file(),
                                       "dex.head_selection.calibration.file")
                            .status());
  }
  DEX_ASSIGN_OR_RETURN(input.gate_files, gate_files(tenant, spec));
  std::array<uint8_t, 4> seed{};
  parts_.random.fill(seed);
  input.seed = int64_t{seed[0]} | int64_t{seed[1]} << 8 | int64_t{seed[2]} << 16 |
               int64_t{seed[3] & 0x7f} << 24;
  Plan plan;
  DEX_ASSIGN_OR_RETURN(plan.resolved, core::resolve(input));
  DEX_RETURN_IF_ERROR(check_gate_adapters(tenant, plan.resolved.config.spec(), model));
  plan.model = model;
  plan.device = device();
  plan.estimate = core::estimate(plan.resolved, model, plan.device);
  return plan;
}

base::Result<v1::Estimate> FineTuningJobs::estimate(
    const auth::Principal& who, const v1::EstimateFineTuningJobRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsRead));
  if (request.mode() != v1::Estimate::METHOD_UNSPECIFIED &&
      request.mode() != v1::Estimate::METHOD_FORMULA)
    return base::invalid_field("mode", "must be METHOD_FORMULA or METHOD_PROBE");
  DEX_ASSIGN_OR_RETURN(Plan plan, this->plan(who.tenant(), request.spec()));
  if (!plan.estimate.has_effective_config())
    *plan.estimate.mutable_effective_config() = plan.resolved.config;
  return std::move(plan.estimate);
}

base::Result<store::NewJob> FineTuningJobs::new_job(const std::string& tenant, const Plan& plan) {
  const v1::FineTuningJobSpec& spec = plan.resolved.config.spec();
  v1::FineTuningJob fixed = fixed_part(plan.resolved.config);
  for (const std::string& warning : plan.resolved.warnings) fixed.add_warnings(warning);
  store::NewJob job;
  job.id = parts_.ids.make("ftjob-");
  job.pool = spec.pool();
  job.base_model =
      proto::model_and_feature(core::base_model_of(spec.model()), proto::needed_feature(spec));
  job.priority = static_cast<int>(spec.has_priority() ? spec.priority() : 4);
  job.max_fail = static_cast<int>(spec.has_max_retries() ? spec.max_retries() : 2);
  job.cost_gpu_seconds = plan.estimate.expected_duration_seconds();
  job.deadline_ms = static_cast<int64_t>(std::ceil(spec.deadline_seconds() * 1000));
  job.adapter = "ft:" + core::base_model_of(spec.model()) + ":" + tenant + ":" +
                lower(spec.suffix()) + ":" + job.id.substr(job.id.find('-') + 1);
  job.spec = fixed.SerializeAsString();
  std::set<std::string> files{spec.training_file()};
  if (spec.has_validation_file()) files.insert(spec.validation_file());
  const auto& guard = spec.watchdog().base_guard();
  if (guard.has_probe_file()) files.insert(guard.probe_file());
  const auto& calibration = spec.dex().head_selection().calibration();
  if (calibration.has_file()) files.insert(calibration.file());
  for (const core::NamedFile& file : core::gate_files(spec)) files.insert(file.id);
  job.files.assign(files.begin(), files.end());
  job.adapters = needed_adapters(spec);
  if (job.spec.size() > kLargestSpecBytes) {
    return base::Status(base::Code::kInvalidArgument, "TOO_LARGE",
                        "the resolved spec has " + std::to_string(job.spec.size()) + " bytes, " +
                            std::to_string(kLargestSpecBytes) + " are allowed")
        .with_violation("spec", "is too large");
  }
  return job;
}

base::Result<store::NewJob> FineTuningJobs::checked_job(const auth::Principal& who,
                                                        const v1::FineTuningJobSpec& spec) {
  DEX_RETURN_IF_ERROR(check_priority_scope(who, spec.priority()));
  DEX_ASSIGN_OR_RETURN(const Plan plan, this->plan(who.tenant(), spec));
  if (!plan.estimate.allowed_to_proceed()) {
    std::string why;
    for (const std::string& blocker : plan.estimate.blockers())
      why += (why.empty() ? "" : "; ") + blocker;
    return base::failed_precondition("DOES_NOT_FIT", "The job can't run here: " + why);
  }
  DEX_ASSIGN_OR_RETURN(auto job, new_job(who.tenant(), plan));
  job.hold = !plan.resolved.config.spec().auto_start();
  return job;
}

base::Result<Answer<v1::FineTuningJob>> FineTuningJobs::create(
    const auth::Principal& who, const v1::CreateFineTuningJobRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsWrite));
  const std::string& tenant = who.tenant();
  if (!request.has_spec()) return missing("spec");
  DEX_RETURN_IF_ERROR(check_priority_scope(who, request.spec().priority()));
  store::JobRepository::Submission submission;
  DEX_ASSIGN_OR_RETURN(submission.request, identity_of(request, parts_.ids));

  // A repeat gets the first call's job even if its file has gone since, so this comes before
  // checks.
  if (!request.validate_only() && !request.request_id().empty()) {
    DEX_ASSIGN_OR_RETURN(const auto ids, parts_.store.made_by(tenant, submission.request));
    if (!ids.empty()) {
      DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(tenant, ids.front()));
      parts_.metrics.submitted(kFineTuningKind, "replayed");
      return Answer<v1::FineTuningJob>{job_view(record), true};
    }
  }
  auto job = checked_job(who, request.spec());
  if (!job.ok()) {
    parts_.metrics.submitted(kFineTuningKind, "refused");
    return job.status();
  }
  if (request.validate_only()) {
    v1::FineTuningJob resolved;
    resolved.ParseFromString(job->spec);
    return Answer<v1::FineTuningJob>{std::move(resolved), false};
  }
  if (options_.durable) DEX_RETURN_IF_ERROR(store_keeps(options_.durable()));
  submission.jobs.push_back(std::move(job).value());
  return submit(tenant, std::move(submission));
}

base::Result<Answer<v1::FineTuningJob>> FineTuningJobs::submit(
    const std::string& tenant, store::JobRepository::Submission submission) {
  const auto submitted = parts_.jobs.submit(tenant, submission);
  parts_.metrics.submitted(kFineTuningKind, submitted);
  DEX_RETURN_IF_ERROR(submitted.status());
  if (options_.changed) options_.changed();
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(tenant, submitted->ids.front()));
  return Answer<v1::FineTuningJob>{job_view(record), submitted->replayed};
}

base::Result<v1::FineTuningJob> FineTuningJobs::get(const auth::Principal& who,
                                                    const v1::GetFineTuningJobRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsRead));
  DEX_RETURN_IF_ERROR(check_job_id(request.id(), "ftjob-", "job"));
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), request.id()));
  v1::FineTuningJob view = job_view(record);
  if (options_.estimated_start && view.waiting_reason() == v1::WAITING_REASON_CAPACITY) {
    DEX_ASSIGN_OR_RETURN(const auto start, options_.estimated_start(record, view.base_model()));
    if (start) *view.mutable_estimated_start_time() = *start;
  }
  if (!request.with_head_selection() || record.state != "SUCCEEDED") return view;
  DEX_ASSIGN_OR_RETURN(auto report, head_selection_of_job(record, parts_.layout));
  if (report) *view.mutable_head_selection() = std::move(*report);
  return view;
}

base::Result<v1::ListFineTuningJobsResponse> FineTuningJobs::list(
    const auth::Principal& who, const v1::ListFineTuningJobsRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsRead));
  DEX_ASSIGN_OR_RETURN(const int wanted, page_size(request.page_size()));
  DEX_ASSIGN_OR_RETURN(const JobFilter filter, JobFilter::create(request.filter()));
  const auto created_ms = [&](const std::string& id) -> base::Result<int64_t> {
    DEX_RETURN_IF_ERROR(check_job_id(id, "ftjob-", "job"));
    DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), id));
    return record.created_ms;
  };
  DEX_ASSIGN_OR_RETURN(auto cursor, list_cursor(request.page_token(), request.after(), created_ms));
  // Straight to the newest that can match, unless the list is further already.
  const int64_t newest_ms = filter.before_ms();
  if (newest_ms >= 0 && (cursor.before_ms < 0 || newest_ms < cursor.before_ms))
    cursor = {newest_ms, ""};
  v1::ListFineTuningJobsResponse page;
  size_t bytes = 0;
  for (int looked_at = 0; looked_at < kMostLookedAt;) {
    const int count = std::min(kStorePage, wanted + 1);
    DEX_ASSIGN_OR_RETURN(const auto records, parts_.jobs.list(who.tenant(), cursor, count));
    for (const auto& record : records) {
      if (filter.is_past(record.created_ms)) return page;
      if (page.jobs_size() == wanted || bytes >= kListBytes) {  // there is at least one more
        page.set_next_page_token(page_token(cursor.before_ms, cursor.before_id));
        return page;
      }
      cursor = {record.created_ms, record.id};
      if (record.kind != kFineTuningKind) continue;
      auto job = job_view(record);
      if (!filter.matches(job)) continue;
      job.clear_effective_config();
      bytes += job.ByteSizeLong();
      *page.add_jobs() = std::move(job);
    }
    if (static_cast<int>(records.size()) < count) return page;
    looked_at += count;
  }
  page.set_next_page_token(page_token(cursor.before_ms, cursor.before_id));
  return page;
}

base::Result<Answer<v1::FineTuningJob>> FineTuningJobs::cancel(
    const auth::Principal& who, const v1::CancelFineTuningJobRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsWrite));
  DEX_RETURN_IF_ERROR(check_job_id(request.id(), "ftjob-", "job"));
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  DEX_ASSIGN_OR_RETURN(const auto before, parts_.jobs.get(who.tenant(), request.id()));
  DEX_ASSIGN_OR_RETURN(const auto cancelled, parts_.jobs.cancel(who.tenant(), request.id(),
                                                                "Cancelled by its owner.", key));
  if (cancelled.ended) parts_.metrics.job_finished(before.pool, before.kind, "cancelled");
  if (options_.changed) options_.changed();
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), request.id()));
  return Answer<v1::FineTuningJob>{job_view(record), cancelled.replayed};
}

base::Result<v1::ListFineTuningEventsResponse> FineTuningJobs::events(
    const auth::Principal& who, const v1::ListFineTuningEventsRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsRead));
  DEX_RETURN_IF_ERROR(check_job_id(request.id(), "ftjob-", "job"));
  DEX_ASSIGN_OR_RETURN(const int wanted, page_size(request.page_size(), 100));
  if (request.after_sequence() < 0) return base::invalid_field("after_sequence", "must be ≥ 0");
  if (request.before_sequence() < 0) return base::invalid_field("before_sequence", "must be ≥ 0");
  const bool back = request.newest_first();
  if (back && request.after_sequence() > 0)
    return base::bad_field("CONFLICTING_FIELDS", "after_sequence", "does not go with newest_first");
  if (!back && request.before_sequence() > 0)
    return base::bad_field("UNUSED_FIELD", "before_sequence", "has no effect without newest_first");
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), request.id()));
  DEX_ASSIGN_OR_RETURN(
      auto events,
      back ? parts_.events.read_back(who.tenant(), record.id, request.before_sequence(), wanted + 1)
           : parts_.events.read(who.tenant(), record.id, request.after_sequence(), wanted + 1));
  v1::ListFineTuningEventsResponse page;
  for (auto& event : events) {
    if (page.events_size() == wanted) {
      page.set_has_more(true);
      break;
    }
    *page.add_events() = std::move(event);
  }
  return page;
}

base::Result<v1::ListFineTuningCheckpointsResponse> FineTuningJobs::checkpoints(
    const auth::Principal& who, const v1::ListFineTuningCheckpointsRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kJobsRead));
  if (request.job().empty()) return missing("job");
  DEX_RETURN_IF_ERROR(check_job_id(request.job(), "ftjob-", "job"));
  DEX_ASSIGN_OR_RETURN(const int wanted, page_size(request.page_size()));
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), request.job()));
  CheckpointList saved(record.id);
  constexpr int kAtOnce = 1000;
  for (int64_t after = 0;;) {
    DEX_ASSIGN_OR_RETURN(const auto events,
                         parts_.events.read(who.tenant(), record.id, after, kAtOnce));
    for (const auto& event : events) saved.add(event);
    if (static_cast<int>(events.size()) < kAtOnce) break;
    after = events.back().sequence();
  }
  return saved.page(request.after(), wanted);
}

}  // namespace dex::server
