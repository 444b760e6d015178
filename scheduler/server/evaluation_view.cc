#include "scheduler/server/evaluation_view.h"

#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "scheduler/core/public_state.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/times.h"
#include "services/base/files.h"
#include "services/base/sha256.h"

namespace dex::server {

namespace {

// The worker keeps at most 500 rows a task (worker/serve/evaluation_messages.h), so that a reply
// stays below gRPC's 4 MiB; as JSON they are longer.
constexpr int64_t kLargestPart = 8 << 20;

base::Status corrupt(const std::string& id, const std::string& what) {
  return {base::Code::kDataLoss, "ARTIFACT_CORRUPT", "the results of " + id + ": " + what};
}

base::Result<std::string> published(const store::JobRecord& record,
                                    const std::filesystem::path& folder,
                                    const nlohmann::json& checksums, const char* name) {
  auto bytes = base::read_file(folder / name, kLargestPart);
  if (!bytes.ok()) return corrupt(record.id, bytes.status().message());
  if (checksums.value(name, "") != base::sha256_hex(*bytes))
    return corrupt(record.id, std::string(name) + " is not what was published");
  return bytes;
}

}  // namespace

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
  const auto folder = layout.absolute(record.result_uri);
  DEX_RETURN_IF_ERROR(folder.status());
  const auto manifest = base::read_file(*folder / "checksums.json", kLargestPart);
  if (!manifest.ok()) return corrupt(record.id, manifest.status().message());
  if (base::sha256_hex(*manifest) != record.result_sha256)
    return corrupt(record.id, "checksums.json is not what was published");
  const auto checksums = nlohmann::json::parse(*manifest, nullptr, false);
  if (!checksums.is_object()) return corrupt(record.id, "checksums.json is no JSON object");
  const auto results = published(record, *folder, checksums, "results.json");
  DEX_RETURN_IF_ERROR(results.status());
  const auto report = published(record, *folder, checksums, "report.md");
  DEX_RETURN_IF_ERROR(report.status());
  v1::EvaluationReport parsed;
  const auto status = google::protobuf::util::JsonStringToMessage(*results, &parsed);
  if (!status.ok()) return corrupt(record.id, "results.json: " + std::string(status.message()));
  *evaluation.mutable_results() = std::move(*parsed.mutable_results());
  evaluation.set_report_markdown(*report);
  return {};
}

}  // namespace dex::server
