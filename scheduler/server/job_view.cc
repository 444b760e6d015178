#include "scheduler/server/job_view.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "scheduler/core/public_state.h"
#include "scheduler/core/warm_start.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/result_files.h"
#include "scheduler/server/times.h"
#include "services/base/ids.h"

namespace dex::server {

namespace {

constexpr std::string_view kPhasePrefix = "JOB_PHASE_";

core::StoredState stored_state(const store::JobRecord& record, const v1::Progress& progress) {
  return {record.state, record.want, phase_of(record.phase), progress.step(), record.why_code};
}

// Any type with ParseFromString; an empty or foreign text gives an empty message.
template <typename Message>
Message parsed(const std::string& bytes) {
  Message message;
  if (!message.ParseFromString(bytes)) message.Clear();
  return message;
}

void add_error(const store::JobRecord& record, v1::FineTuningJob& job) {
  v1::JobError& error = *job.mutable_error();
  error = parsed<v1::JobError>(record.why_details);
  error.set_code(record.why_code);
  error.set_message(record.why);
  error.set_category(std::string(core::error_category(record.why_code)));
  error.set_retryable(error.category() != "USER");
  error.set_attempt(static_cast<uint32_t>(record.attempt));
}

v1::PauseReason pause_reason_of(const std::string& word) {
  v1::PauseReason reason = v1::PAUSE_REASON_UNSPECIFIED;
  v1::PauseReason_Parse("PAUSE_REASON_" + word, &reason);
  return reason;
}

v1::FineTuningEvent::Level level_of(const std::string& word) {
  if (word == "WARN") return v1::FineTuningEvent::LEVEL_WARN;
  if (word == "ERROR") return v1::FineTuningEvent::LEVEL_ERROR;
  return v1::FineTuningEvent::LEVEL_INFO;
}

// The data that lua/lib.lua gives state events: "a\nb".
void add_state_data(const store::LogEntry& entry, v1::FineTuningEvent& event) {
  const size_t line = entry.data.find('\n');
  const std::string first = entry.data.substr(0, line);
  const std::string second = line == std::string::npos ? "" : entry.data.substr(line + 1);
  const auto step = static_cast<uint32_t>(std::strtoul(second.c_str(), nullptr, 10));
  if (entry.type == "job_start") {
    event.mutable_job_start()->set_worker(first);
    event.mutable_job_start()->set_attempt(event.attempt());
    event.mutable_job_start()->set_resumed_from_step(step);
  } else if (entry.type == "job_restarted") {
    event.mutable_job_restarted()->set_reason(first);
    event.mutable_job_restarted()->set_attempt(event.attempt());
    if (step > 0) event.mutable_job_restarted()->set_checkpoint("step-" + second);
  } else if (entry.type == "job_complete") {
    event.mutable_job_end()->set_fine_tuned_model(first);
  } else if (is_last_event(entry.type)) {
    event.mutable_job_end()->set_error_code(first);
  }
}

}  // namespace

std::string phase_word(v1::JobPhase phase) {
  if (phase == v1::JOB_PHASE_UNSPECIFIED || !v1::JobPhase_IsValid(phase)) return "";
  return v1::JobPhase_Name(phase).substr(kPhasePrefix.size());
}

v1::JobPhase phase_of(const std::string& word) {
  v1::JobPhase phase = v1::JOB_PHASE_UNSPECIFIED;
  v1::JobPhase_Parse(std::string(kPhasePrefix) + word, &phase);
  return phase;
}

v1::FineTuningJob fixed_part(const v1::EffectiveConfig& config) {
  const v1::FineTuningJobSpec& spec = config.spec();
  v1::FineTuningJob job;
  *job.mutable_effective_config() = config;
  job.set_model(spec.model());
  job.set_base_model(core::base_model_of(spec.model()));
  job.set_suffix(spec.suffix());
  job.set_display_name(spec.display_name());
  *job.mutable_metadata() = spec.metadata();
  job.set_seed(spec.seed());
  job.set_training_file(spec.training_file());
  job.set_validation_file(spec.validation_file());
  // The number of updates is known beforehand only where it was asked for; by epochs the trainer
  // counts them.
  job.mutable_progress()->set_total_steps(spec.hyperparameters().max_steps());
  return job;
}

v1::FineTuningJobSpec effective_spec(const std::string& stored) {
  return parsed<v1::FineTuningJob>(stored).effective_config().spec();
}

v1::JobState public_state(const store::JobRecord& record, const v1::Progress& progress) {
  return core::public_state(stored_state(record, progress));
}

v1::FineTuningJob job_view(const store::JobRecord& record, bool with_config) {
  auto job = parsed<v1::FineTuningJob>(record.spec);
  if (!with_config) job.clear_effective_config();
  auto progress = parsed<v1::Progress>(record.progress);
  const core::StoredState stored = stored_state(record, progress);
  job.set_id(record.id);
  job.set_state(core::public_state(stored));
  job.set_waiting_reason(core::waiting_reason(stored, record.tenant_in_ring, record.lacks_model));
  if (!record.worker.empty()) job.set_phase(stored.phase);
  job.set_attempt(static_cast<uint32_t>(record.attempt));
  job.set_trained_tokens(progress.trained_tokens());
  // Before the first beat: step 0 of what fixed_part() knew, and never nothing.
  if (record.progress.empty()) {
    (void)job.mutable_progress();
  } else {
    *job.mutable_progress() = std::move(progress);
  }
  job.set_worker(record.worker);
  job.set_priority(static_cast<uint32_t>(record.priority));
  if (record.state == "PAUSED") job.set_pause_reason(pause_reason_of(record.pause_reason));
  if (record.name) job.set_display_name(*record.name);
  if (record.metadata)
    *job.mutable_metadata() = parsed<v1::FineTuningJob>(*record.metadata).metadata();
  job.set_etag(std::to_string(record.revision));
  if (record.queue_position > 0)
    job.set_queue_position(static_cast<uint32_t>(record.queue_position));
  // "step-120", or "gates-0": trained, and its gates are being measured.
  const std::string& checkpoint = record.checkpoint.uri;
  job.set_last_checkpoint(checkpoint.substr(checkpoint.rfind('/') + 1));
  *job.mutable_create_time() = timestamp(record.created_ms);
  if (record.started_ms > 0) *job.mutable_start_time() = timestamp(record.started_ms);
  if (record.terminal()) *job.mutable_end_time() = timestamp(record.finished_ms);
  *job.mutable_update_time() = timestamp(record.changed_ms);
  if (!record.worker.empty()) {
    *job.mutable_heartbeat_time() = timestamp(record.heartbeat_ms);
    *job.mutable_lease_expire_time() = timestamp(record.lease_ms);
  }
  if (record.state == "SUCCEEDED") {
    const auto result = parsed<iv1::AttemptResult>(record.result);
    job.set_fine_tuned_model(record.adapter);
    *job.mutable_metrics() = result.metrics();
    *job.mutable_branch_effect() = result.branch_effect();
    job.set_early_stopped(result.metrics().early_stopped());
    *job.mutable_gate_results() = result.gate_results();
    if (result.has_promotable()) job.set_promotable(result.promotable());
    if (result.trained_tokens() > 0) job.set_trained_tokens(result.trained_tokens());
  }
  for (std::string& id : ResultFiles::of(record)) job.add_result_files(std::move(id));
  const bool expired = job.state() == v1::JOB_STATE_EXPIRED;
  if (record.state == "FAILED" || expired) add_error(record, job);
  return job;
}

bool is_last_event(const std::string& type) {
  static constexpr std::array kLast = {"job_complete", "job_cancelled", "job_expired",
                                       "job_user_error", "job_error"};
  return std::find(kLast.begin(), kLast.end(), type) != kLast.end();
}

bool is_reserved_event(const std::string& type) {
  static constexpr std::array kStates = {"job_queued", "job_start", "job_restarted", "job_paused",
                                         "job_resumed"};
  return is_last_event(type) || std::find(kStates.begin(), kStates.end(), type) != kStates.end();
}

v1::FineTuningEvent event_view(const std::string& job, const store::LogEntry& entry) {
  v1::FineTuningEvent event;
  // A worker's data is a whole event of which only the oneof counts.
  if (!is_reserved_event(entry.type)) event = parsed<v1::FineTuningEvent>(entry.data);
  event.set_id("ftevent-" + job.substr(job.find('-') + 1) + "-" + std::to_string(entry.sequence));
  event.set_sequence(entry.sequence);
  *event.mutable_create_time() = timestamp(entry.at_ms);
  event.set_level(level_of(entry.level));
  event.set_type(entry.type);
  event.set_message(entry.message);
  event.set_attempt(static_cast<uint32_t>(entry.attempt));
  if (is_reserved_event(entry.type)) add_state_data(entry, event);
  return event;
}

store::NewEvent new_event(const v1::FineTuningEvent& event) {
  store::NewEvent entry;
  entry.at_ms = unix_ms(event.create_time());
  entry.level = event.level() == v1::FineTuningEvent::LEVEL_ERROR  ? "ERROR"
                : event.level() == v1::FineTuningEvent::LEVEL_WARN ? "WARN"
                                                                   : "INFO";
  entry.type = event.type();
  entry.message = event.message();
  v1::FineTuningEvent data = event;
  data.clear_id();
  data.clear_sequence();
  data.clear_create_time();
  data.clear_level();
  data.clear_type();
  data.clear_message();
  data.clear_attempt();
  entry.data = data.SerializeAsString();
  return entry;
}

store::Checkpoint checkpoint_of(const iv1::CheckpointRef& ref) {
  store::Checkpoint checkpoint{ref.uri(), ref.manifest_sha256(), ref.step()};
  // As agents name what they keep for the gates (worker/agent/gate_checkpoint.h).
  const std::string folder = ref.uri().substr(ref.uri().rfind('/') + 1);
  checkpoint.of_training = !folder.starts_with("gates-");
  return checkpoint;
}

std::string base_of_adapter(const std::string& id) {
  const size_t first = id.find(':');
  if (first == std::string::npos) return "";
  return id.substr(first + 1, id.find(':', first + 1) - first - 1);
}

v1::Adapter adapter_view(const store::AdapterRecord& record) {
  const auto result = parsed<iv1::AttemptResult>(record.info);
  v1::Adapter adapter = result.adapter();
  adapter.set_id(record.id);
  const bool imported = base::is_id(record.job, kImportPrefix);
  adapter.set_origin(imported ? v1::Adapter::ORIGIN_IMPORTED : v1::Adapter::ORIGIN_TRAINED);
  if (!imported) adapter.set_job(record.job);
  adapter.set_base_model(base_of_adapter(record.id));
  adapter.set_bytes(result.bytes());
  adapter.set_content_sha256(record.sha256);
  adapter.set_version(record.sha256.substr(0, 12));
  *adapter.mutable_branch_effect() = result.branch_effect();
  *adapter.mutable_metrics() = result.metrics();
  *adapter.mutable_gate_results() = result.gate_results();
  adapter.clear_promotable();  // as the rest, what the result says and not its adapter part
  if (result.has_promotable()) adapter.set_promotable(result.promotable());
  adapter.set_desired(record.desired == "loaded" ? v1::Adapter::DESIRED_DEVICE
                                                 : v1::Adapter::DESIRED_ABSENT);
  *adapter.mutable_create_time() = timestamp(record.created_ms);
  adapter.set_pinned(record.pinned);
  adapter.clear_aliases();  // a worker has no say in them
  for (const std::string& alias : record.aliases) adapter.add_aliases(alias);
  return adapter;
}

std::optional<v1::FineTuningJobSpec> made_as(const store::AdapterRecord& record) {
  auto result = parsed<iv1::AttemptResult>(record.info);
  if (!result.has_made_as()) return std::nullopt;
  return std::move(*result.mutable_made_as());
}

}  // namespace dex::server
