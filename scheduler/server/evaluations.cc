#include "scheduler/server/evaluations.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "proto/worker_features.h"
#include "scheduler/core/evaluation_spec.h"
#include "scheduler/server/artefact_tar.h"
#include "scheduler/server/evaluation_comparison.h"
#include "scheduler/server/evaluation_samples.h"
#include "scheduler/server/evaluation_view.h"
#include "scheduler/server/file_view.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/leftovers.h"
#include "scheduler/server/page.h"

namespace dex::server {

namespace {

constexpr size_t kLargestEvaluationBytes = 32 << 10;
constexpr int kMostJobsLookedAt = 1000;

base::Status check_evaluation_id(const std::string& id) {
  return check_job_id(id, "eval-", "evaluation");
}

base::Status mismatch(const std::string& field, const std::string& what) {
  return base::failed_precondition("ADAPTER_MISMATCH", field + " " + what)
      .with_violation(field, what);
}

// What a whole model can't be asked beside its base: what method diff makes has more heads.
base::Status check_whole(const v1::EvaluationSpec& spec, const v1::Adapter& model) {
  if (model.method() != "diff") return {};
  for (int i = 0; i < spec.tasks_size(); ++i) {
    if (!spec.tasks(i).has_head_analysis()) continue;
    const std::string field = "tasks[" + std::to_string(i) + "].head_analysis";
    const std::string what = "compares head by head, and " + model.id() +
                             " of method diff has other heads than its base; leave one of them out";
    return base::bad_field("CONFLICTING_FIELDS", field, what);
  }
  return {};
}

// One of those who compare at the same time.
struct ComparisonPlace {
  explicit ComparisonPlace(std::atomic<int>& all) : all(all), taken(++all) {}
  ~ComparisonPlace() { --all; }
  ComparisonPlace(const ComparisonPlace&) = delete;
  ComparisonPlace& operator=(const ComparisonPlace&) = delete;

  std::atomic<int>& all;
  const int taken;  // how many there were with this one
};

bool matches(const v1::Evaluation& evaluation, const v1::ListEvaluationsRequest::Filter& filter) {
  const auto& states = filter.states();
  if (!states.empty() &&
      std::find(states.begin(), states.end(), evaluation.state()) == states.end())
    return false;
  const auto& metadata = evaluation.spec().metadata();
  return std::all_of(filter.metadata().begin(), filter.metadata().end(), [&](const auto& pair) {
    const auto found = metadata.find(pair.first);
    return found != metadata.end() && found->second == pair.second;
  });
}

}  // namespace

base::Result<v1::Model> Evaluations::resolve_subjects(const std::string& tenant,
                                                      v1::EvaluationSpec& spec) {
  if (spec.subjects().empty()) return missing("spec.subjects");
  if (spec.subjects_size() > core::kMostSubjects)  // before each is looked up
    return base::invalid_field("subjects", "must have 1 to 4");
  for (int i = 0; i < spec.subjects_size(); ++i) {
    auto& subject = *spec.mutable_subjects(i);
    const std::string at = "subjects[" + std::to_string(i) + "].";
    if (subject.adapter().empty()) {
      if (subject.model().empty()) return missing(at + "model");
      continue;
    }
    const auto record = parts_.adapters.get(tenant, subject.adapter());
    if (!record.ok()) {
      return base::Status(record.status())
          .with_violation(at + "adapter", record.status().message());
    }
    const v1::Adapter adapter = adapter_view(*record);
    const bool whole = adapter.artifact_class() == "MODEL";
    if (whole) DEX_RETURN_IF_ERROR(check_whole(spec, adapter));
    if (subject.has_dex_lambda_scale() && (whole || adapter.form() == "none")) {
      const std::string field = at + "dex_lambda_scale";
      const std::string what =
          "has no effect: " + subject.adapter() +
          (whole ? " is a whole model, with whatever branch it had inside its weights"
                 : " of method " + adapter.method() + " has no branch whose λ it scales");
      return base::bad_field("UNUSED_FIELD", field, what);
    }
    const std::string base = base_of_adapter(record->id);
    if (!subject.model().empty() && subject.model() != base)
      return mismatch(at + "adapter", "is one of " + base + ", not of " + subject.model());
    subject.set_model(base);
  }
  const std::string& base = spec.subjects(0).model();
  for (int i = 1; i < spec.subjects_size(); ++i) {
    if (spec.subjects(i).model() == base) continue;
    const std::string field = "subjects[" + std::to_string(i) + "].model";
    const std::string what = "must be " + base + " like that of subjects[0], got " +
                             spec.subjects(i).model() +
                             ": the subjects of an evaluation share one base model";
    return base::bad_field("INVALID_FIELD", field, what);
  }
  auto model = parts_.models.find(base);
  if (model.ok()) return model;
  return base::Status(model.status()).with_violation("subjects[0].model", model.status().message());
}

base::Result<store::NewJob> Evaluations::new_job(const std::string& tenant,
                                                 v1::EvaluationSpec spec) {
  DEX_ASSIGN_OR_RETURN(const v1::Model model, resolve_subjects(tenant, spec));
  DEX_RETURN_IF_ERROR(core::to_status(core::check_evaluation(spec, model)));
  store::NewJob job;
  std::map<std::string, std::string> names;
  std::map<std::string, int64_t> bytes;
  for (const auto& [field, id] : core::evaluation_files(spec)) {
    auto record = parts_.files.get(tenant, id);
    if (!record.ok())
      return base::Status(record.status()).with_violation(field, record.status().message());
    DEX_RETURN_IF_ERROR(require_ready(*record, field));
    if (names.emplace(id, record->filename).second) job.files.push_back(id);
    bytes[id] = record->bytes;
  }
  std::set<std::string> adapters;
  for (const auto& subject : spec.subjects()) {
    if (!subject.adapter().empty()) adapters.insert(subject.adapter());
  }
  job.adapters.assign(adapters.begin(), adapters.end());
  core::fill_evaluation(spec, names);
  job.id = parts_.ids.make("eval-");
  job.kind = kEvaluationKind;
  job.pool = options_.pool;
  job.base_model = proto::model_and_feature(model.name(), proto::needed_feature(spec));
  job.cost_gpu_seconds = core::evaluation_seconds(spec, model, bytes);
  job.spec = spec.SerializeAsString();
  job.queued_message = "The evaluation is queued.";
  if (job.spec.size() > kLargestEvaluationBytes) {
    return base::Status(base::Code::kInvalidArgument, "TOO_LARGE",
                        "the resolved spec has " + std::to_string(job.spec.size()) + " bytes, " +
                            std::to_string(kLargestEvaluationBytes) + " are allowed")
        .with_violation("spec", "is too large");
  }
  return job;
}

base::Result<Answer<v1::Evaluation>> Evaluations::create(
    const auth::Principal& who, const v1::CreateEvaluationRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kEvalWrite));
  const std::string& tenant = who.tenant();
  if (!request.has_spec()) return missing("spec");
  store::JobRepository::Submission submission;
  DEX_ASSIGN_OR_RETURN(submission.request, identity_of(request, parts_.ids));
  // A repeat gets the first call's evaluation even if a file has gone since, so this comes first.
  if (!request.validate_only() && !request.request_id().empty()) {
    DEX_ASSIGN_OR_RETURN(const auto ids, parts_.store.made_by(tenant, submission.request));
    if (!ids.empty()) {
      DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(tenant, ids.front()));
      parts_.metrics.submitted(kEvaluationKind, "replayed");
      return Answer<v1::Evaluation>{evaluation_view(record), true};
    }
  }
  auto job = new_job(tenant, request.spec());
  if (!job.ok()) {
    parts_.metrics.submitted(kEvaluationKind, "refused");
    return job.status();
  }
  if (request.validate_only()) {
    v1::Evaluation resolved;
    *resolved.mutable_spec() = stored_evaluation(job->spec);
    return Answer<v1::Evaluation>{std::move(resolved), false};
  }
  if (options_.durable) DEX_RETURN_IF_ERROR(store_keeps(options_.durable()));
  submission.jobs.push_back(std::move(job).value());
  const auto submitted = parts_.jobs.submit(tenant, submission);
  parts_.metrics.submitted(kEvaluationKind, submitted);
  DEX_RETURN_IF_ERROR(submitted.status());
  if (options_.changed) options_.changed();
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(tenant, submitted->ids.front()));
  return Answer<v1::Evaluation>{evaluation_view(record), submitted->replayed};
}

base::Result<v1::Evaluation> Evaluations::get(const auth::Principal& who,
                                              const v1::GetEvaluationRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kEvalRead));
  DEX_RETURN_IF_ERROR(check_evaluation_id(request.id()));
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), request.id()));
  auto view = evaluation_view(record);
  if (record.state != "SUCCEEDED") return view;
  DEX_RETURN_IF_ERROR(add_results(record, parts_.layout, view));
  if (request.with_pictures()) DEX_RETURN_IF_ERROR(add_pictures(record, parts_.layout, view));
  return view;
}

base::Status Evaluations::download(const auth::Principal& who,
                                   const v1::DownloadEvaluationRequest& request,
                                   const std::function<bool(std::string)>& sink) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kEvalRead));
  DEX_RETURN_IF_ERROR(check_evaluation_id(request.id()));
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), request.id()));
  if (record.state != "SUCCEEDED") {
    return base::failed_precondition(
        "JOB_STATE_CONFLICT",
        "evaluation " + request.id() + " has not succeeded, so it has published nothing");
  }
  DEX_ASSIGN_OR_RETURN(const auto folder, parts_.layout.absolute(record.result_uri));
  return send_artefact(folder, record.result_sha256, "The evaluation's", sink);
}

base::Result<v1::ListEvaluationsResponse> Evaluations::list(
    const auth::Principal& who, const v1::ListEvaluationsRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kEvalRead));
  DEX_ASSIGN_OR_RETURN(const int wanted, page_size(request.page_size()));
  DEX_ASSIGN_OR_RETURN(auto cursor, parse_page_token(request.page_token()));
  v1::ListEvaluationsResponse page;
  size_t bytes = 0;
  for (int looked_at = 0; looked_at < kMostJobsLookedAt;) {
    DEX_ASSIGN_OR_RETURN(const auto records, parts_.jobs.list(who.tenant(), cursor, kStorePage));
    for (const auto& record : records) {
      if (page.evaluations_size() == wanted || bytes >= kListBytes) {  // there may be one more
        page.set_next_page_token(page_token(cursor.before_ms, cursor.before_id));
        return page;
      }
      cursor = {record.created_ms, record.id};
      if (record.kind != kEvaluationKind) continue;
      auto view = evaluation_view(record);
      if (!matches(view, request.filter())) continue;
      bytes += view.ByteSizeLong();
      *page.add_evaluations() = std::move(view);
    }
    if (static_cast<int>(records.size()) < kStorePage) return page;
    looked_at += kStorePage;
  }
  page.set_next_page_token(page_token(cursor.before_ms, cursor.before_id));
  return page;
}

base::Result<v1::ListEvaluationSamplesResponse> Evaluations::samples(
    const auth::Principal& who, const v1::ListEvaluationSamplesRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kEvalRead));
  DEX_RETURN_IF_ERROR(check_evaluation_id(request.id()));
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), request.id()));
  return evaluation_samples(record, parts_.layout, request);
}

base::Result<v1::CompareEvaluationsResponse> Evaluations::compare(
    const auth::Principal& who, const v1::CompareEvaluationsRequest& request,
    const std::stop_token& stop) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kEvalRead));
  if (request.a().empty()) return missing("a");
  if (request.b().empty()) return missing("b");
  DEX_RETURN_IF_ERROR(check_evaluation_id(request.a()));
  DEX_RETURN_IF_ERROR(check_evaluation_id(request.b()));
  DEX_ASSIGN_OR_RETURN(const auto a, parts_.jobs.get(who.tenant(), request.a()));
  DEX_ASSIGN_OR_RETURN(const auto b, parts_.jobs.get(who.tenant(), request.b()));
  const ComparisonPlace place(comparing_);
  if (place.taken > options_.comparisons) {
    return base::Status(base::Code::kResourceExhausted, "RATE_LIMITED",
                        "the server computes other comparisons just now; try again in a moment");
  }
  return compare_evaluations(a, b, parts_.models, parts_.layout, request, stop);
}

base::Result<Answer<v1::Evaluation>> Evaluations::cancel(
    const auth::Principal& who, const v1::CancelEvaluationRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kEvalWrite));
  DEX_RETURN_IF_ERROR(check_evaluation_id(request.id()));
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  DEX_ASSIGN_OR_RETURN(const auto before, parts_.jobs.get(who.tenant(), request.id()));
  DEX_ASSIGN_OR_RETURN(const auto cancelled, parts_.jobs.cancel(who.tenant(), request.id(),
                                                                "Cancelled by its owner.", key));
  if (cancelled.ended) parts_.metrics.job_finished(before.pool, before.kind, "cancelled");
  if (options_.changed) options_.changed();
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), request.id()));
  return Answer<v1::Evaluation>{evaluation_view(record), cancelled.replayed};
}

base::Result<Answer<v1::DeleteEvaluationResponse>> Evaluations::remove(
    const auth::Principal& who, const v1::DeleteEvaluationRequest& request) {
  using Deleted = Answer<v1::DeleteEvaluationResponse>;
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kEvalWrite));
  DEX_RETURN_IF_ERROR(check_evaluation_id(request.id()));
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  v1::DeleteEvaluationResponse response;
  response.set_id(request.id());
  // A repeat finds no record any more, so this comes first.
  DEX_ASSIGN_OR_RETURN(const auto made, parts_.store.made_by(who.tenant(), key));
  if (!made.empty()) return Deleted{response, true};
  DEX_ASSIGN_OR_RETURN(const auto record, parts_.jobs.get(who.tenant(), request.id()));
  DEX_ASSIGN_OR_RETURN(const bool replayed,
                       delete_ended_job(parts_.layout, parts_.jobs, parts_.adapters, record, key));
  if (options_.changed) options_.changed();
  return Deleted{response, replayed};
}

}  // namespace dex::server
