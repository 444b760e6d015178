#include "scheduler/server/evaluation_view.h"

#include <google/protobuf/util/json_util.h>

#include <string>
#include <utility>

#include "scheduler/core/public_state.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/published_file.h"
#include "scheduler/server/times.h"

namespace dex::server {

v1::EvaluationSpec stored_evaluation(const std::string& stored) {
  v1::EvaluationSpec spec;
  if (!spec.ParseFromString(stored)) spec.Clear();
  return spec;
}

v1::Evaluation evaluation_view(const store::JobRecord& record) {
  // State, phase, progress and error are those of any job; only the spec is another.
  store::JobRecord plain = record;
  plain.spec.clear();
  v1::FineTuningJob job = job_view(plain);
  v1::Evaluation view;
  view.set_id(record.id);
  *view.mutable_spec() = stored_evaluation(record.spec);
  view.set_state(job.state());
  view.set_phase(job.phase());
  view.set_waiting_reason(job.waiting_reason());
  view.set_attempt(job.attempt());
  if (job.has_queue_position()) view.set_queue_position(job.queue_position());
  view.set_worker(job.worker());
  *view.mutable_progress() = std::move(*job.mutable_progress());
  if (view.progress().total_steps() == 0)
    view.mutable_progress()->set_total_steps(static_cast<uint32_t>(view.spec().tasks_size()));
  if (job.has_error()) *view.mutable_error() = std::move(*job.mutable_error());
  view.set_etag(job.etag());
  *view.mutable_create_time() = job.create_time();
  if (job.has_start_time()) *view.mutable_start_time() = job.start_time();
  if (job.has_end_time()) *view.mutable_end_time() = job.end_time();
  *view.mutable_update_time() = job.update_time();
  return view;
}

base::Status add_results(const store::JobRecord& record, const DataLayout& layout,
                         v1::Evaluation& evaluation) {
  const auto results = published_file(record, layout, "results.json");
  DEX_RETURN_IF_ERROR(results.status());
  const auto report = published_file(record, layout, "report.md");
  DEX_RETURN_IF_ERROR(report.status());
  v1::EvaluationReport parsed;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of a worker that is newer than this scheduler
  const auto status = google::protobuf::util::JsonStringToMessage(*results, &parsed, options);
  if (!status.ok())
    return corrupt_results(record.id, "results.json: " + std::string(status.message()));
  *evaluation.mutable_results() = std::move(*parsed.mutable_results());
  evaluation.set_report_markdown(*report);
  return {};
}

base::Status add_pictures(const store::JobRecord& record, const DataLayout& layout,
                          v1::Evaluation& evaluation) {
  DEX_ASSIGN_OR_RETURN(const auto names, published_names(record, layout, ".svg"));
  size_t taken = evaluation.ByteSizeLong();
  for (const std::string& name : names) {
    DEX_ASSIGN_OR_RETURN(std::string svg, published_file(record, layout, name));
    if (taken + svg.size() > kLargestPicturedReply) {
      evaluation.add_pictures_left_out(name);
      continue;
    }
    taken += svg.size();
    auto& picture = *evaluation.add_pictures();
    picture.set_name(name);
    picture.set_svg(std::move(svg));
  }
  return {};
}

}  // namespace dex::server
