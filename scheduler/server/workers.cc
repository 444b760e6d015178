#include "scheduler/server/workers.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "proto/worker_features.h"
#include "scheduler/core/memory_fit.h"
#include "scheduler/core/warm_start.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/job_view.h"
#include "scheduler/server/routes.h"
#include "services/base/files.h"
#include "services/base/sha256.h"

namespace dex::server {

namespace {

constexpr int64_t kLargestManifest = 1 << 20;
constexpr size_t kLargestProgress = 512;
constexpr size_t kLargestWhy = 2048;

base::Status check_name(const std::string& field, const std::string& value, size_t most) {
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
  if (!value.empty() && value.size() <= most && plain) return {};
  return base::invalid_field(field, "must be 1 to " + std::to_string(most) +
                                        " of a-z, 0-9 and '-', got '" + value.substr(0, 64) + "'");
}

template <typename Pools>
base::Status check_pools(const Pools& pools) {
  if (pools.empty() || pools.size() > 8)
    return base::invalid_field("pools", "must name 1 to 8 pools");
  for (const auto& pool : pools) DEX_RETURN_IF_ERROR(check_name("pools", pool, 32));
  return {};
}

// They are stored with spaces between.
template <typename Models>
base::Status check_models(const Models& models) {
  for (const std::string& name : models) {
    if (name.empty() || name.size() > 64 || name.find_first_of(" \t\r\n+") != std::string::npos)
      return base::invalid_field("models", "must be names of base models, got '" + name + "'");
  }
  return {};
}

template <typename Features>
base::Status check_features(const Features& features) {
  constexpr int kMost = 16;
  bool good = features.size() <= kMost;
  for (const std::string& name : features) {
    good = good && !name.empty() && name.size() <= 32 &&
           std::all_of(name.begin(), name.end(),
                       [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  }
  if (good) return {};
  return base::invalid_field("features", "must be at most 16 words of a-z and _");
}

const char* word(iv1::Outcome outcome) {
  switch (outcome) {
    case iv1::OUTCOME_SUCCESS:
      return "success";
    case iv1::OUTCOME_FAIL_RETRY:
      return "fail_retry";
    case iv1::OUTCOME_FAIL_FINAL:
      return "fail_final";
    case iv1::OUTCOME_CRASH:
      return "crash";
    case iv1::OUTCOME_OOM:
      return "oom";
    case iv1::OUTCOME_DISK_FULL:
      return "disk_full";
    case iv1::OUTCOME_RELEASE:
      return "release";
    case iv1::OUTCOME_PAUSED:
      return "paused";
    case iv1::OUTCOME_CANCELLED:
      return "cancelled";
    default:
      return "";
  }
}

// Stored progress is bounded; what does not fit is dropped whole and the old figures stay.
std::string progress_bytes(const v1::Progress& progress) {
  std::string bytes = progress.SerializeAsString();
  return bytes.size() <= kLargestProgress ? bytes : "";
}

template <typename Events>
std::vector<store::NewEvent> new_events(const std::string& job, const Events& events) {
  std::vector<store::NewEvent> entries;
  for (const auto& event : events) {
    if (is_reserved_event(event.type()) || event.type().empty()) {
      spdlog::warn("job {}: a worker sent an event of type '{}', which is not its to send", job,
                   event.type());
      continue;
    }
    entries.push_back(new_event(event));
  }
  return entries;
}

iv1::AttemptVerdict::Verdict verdict_of(store::JobRepository::Verdict verdict) {
  switch (verdict) {
    case store::JobRepository::Verdict::kOk:
      return iv1::AttemptVerdict::VERDICT_OK;
    case store::JobRepository::Verdict::kPause:
      return iv1::AttemptVerdict::VERDICT_PAUSE;
    case store::JobRepository::Verdict::kCancel:
      return iv1::AttemptVerdict::VERDICT_CANCEL;
    case store::JobRepository::Verdict::kLost:
      return iv1::AttemptVerdict::VERDICT_LOST;
  }
  return iv1::AttemptVerdict::VERDICT_LOST;
}

// For those who see no details.
std::string fit_text(const v1::OutOfMemory& failed) {
  core::SettingChanges fit;
  for (const auto& [path, value] : failed.nearest_fit()) fit[path] = value;
  return fit.empty() ? "" : "; by the estimate, " + core::text_of(fit) + " would fit";
}

// A checkpoint is what the next attempt trusts, and what the janitor keeps: it lies in this job's
// own directories, or there is none. A beat or an end that names another one counts for the rest of
// what it says: without it the lease would run out, and a stop or a failure become a crash.
store::Checkpoint own_checkpoint(const iv1::CheckpointRef& offered, const std::string& job,
                                 const std::string& worker) {
  if (offered.uri().empty() || DataLayout::is_in_attempt(offered.uri(), job))
    return checkpoint_of(offered);
  spdlog::error("job {}: {} offers a checkpoint that is not taken: '{}' is in no attempt directory",
                job, worker, offered.uri().substr(0, 255));
  return {};
}

// Rounded to tenths of a second, so that what differs from beat to beat is not worth a write.
std::optional<int64_t> clock_ahead(const iv1::HeartbeatRequest& request, int64_t now_ms) {
  constexpr int64_t kStep = 100;
  if (request.now_ms() == 0) return std::nullopt;  // an older worker
  return (request.now_ms() - now_ms) / kStep * kStep;
}

std::string finish_outcome(const std::string& state, const std::string& code) {
  if (state == "SUCCEEDED") return "succeeded";
  if (state == "CANCELLED") return code == "deadline_exceeded" ? "expired" : "cancelled";
  return code.empty() ? "internal" : code;
}

}  // namespace

base::Result<iv1::RegisterResponse> Workers::enlist(const iv1::RegisterRequest& request) {
  DEX_RETURN_IF_ERROR(check_name("worker_id", request.worker_id(), 64));
  DEX_RETURN_IF_ERROR(check_pools(request.pools()));
  DEX_RETURN_IF_ERROR(check_models(request.models()));
  DEX_RETURN_IF_ERROR(check_features(request.features()));
  store::WorkerRecord worker;
  worker.id = request.worker_id();
  worker.host = request.host();
  worker.version = request.version();
  worker.pools.assign(request.pools().begin(), request.pools().end());
  worker.slots = static_cast<int>(request.slots());
  worker.models.assign(request.models().begin(), request.models().end());
  for (const std::string& feature : request.features()) {
    for (const std::string& model : request.models())
      worker.models.push_back(proto::model_and_feature(model, feature));
  }
  worker.info = request.SerializeAsString();
  DEX_RETURN_IF_ERROR(parts_.workers.enlist(worker).status());
  spdlog::info("worker {} on {} registered, version {}", worker.id, worker.host, worker.version);
  options_.changed();
  iv1::RegisterResponse response;
  response.set_lease_ms(parts_.store.times().lease_ms);
  response.set_beat_ms(options_.beat_ms);
  return response;
}

base::Result<iv1::ClaimResponse> Workers::claim(const iv1::ClaimRequest& request) {
  DEX_RETURN_IF_ERROR(check_name("worker_id", request.worker_id(), 64));
  DEX_RETURN_IF_ERROR(check_pools(request.pools()));
  if (request.claim_id().empty() || request.claim_id().size() > 64) {
    return base::invalid_field("claim_id", "must have 1 to 64 characters");
  }
  store::JobRepository::ClaimRequest claim;
  claim.worker = request.worker_id();
  claim.claim_id = request.claim_id();
  claim.slot = static_cast<int>(request.slot());
  claim.pools.assign(request.pools().begin(), request.pools().end());
  DEX_ASSIGN_OR_RETURN(const auto answer, parts_.jobs.claim(claim));
  using Answer = store::JobRepository::ClaimAnswer;
  iv1::ClaimResponse response;
  switch (answer.answer) {
    case Answer::kNone:
      response.mutable_none();
      return response;
    case Answer::kStale:
      response.mutable_stale();
      return response;
    case Answer::kDrain:
      response.mutable_drain();
      return response;
    case Answer::kUnknown:
      response.mutable_unknown();
      return response;
    case Answer::kJob:
      break;
  }
  // The claim stands, whatever becomes of the answer; a replayed one was counted then.
  if (!answer.replayed) {
    parts_.metrics.claimed(answer.job.pool, static_cast<double>(answer.job.waited_ms) / 1000);
  }
  auto job = granted(answer.job);
  if (job.status().code() == base::Code::kNotFound) {
    DEX_RETURN_IF_ERROR(give_up(claim, answer.job, job.status()));
    response.mutable_none();
    return response;
  }
  // Should this fail, the worker repeats its claim_id and gets the same job again.
  DEX_ASSIGN_OR_RETURN(*response.mutable_job(), std::move(job));
  if (answer.replayed) return response;  // the answer was lost on its way, not a second claim
  spdlog::info("job {} attempt {} runs on {}", answer.job.id, answer.job.attempt, claim.worker);
  options_.changed();
  return response;
}

base::Status Workers::give_up(const store::JobRepository::ClaimRequest& claim,
                              const store::ClaimedJob& job, const base::Status& why) {
  store::JobRepository::Finish finish;
  finish.worker = claim.worker;
  finish.id = job.id;
  finish.epoch = job.epoch;
  finish.outcome = "fail_final";
  // Exports are seen by AdapterJobs alone; users know the codes of all others (api.md §3).
  finish.why_code = job.kind == kAdapterExportKind ? kAdapterDeletedCode : "invalid_hyperparameter";
  finish.why = "The job can't start, since what it names was deleted: " + why.message();
  const auto finished = parts_.jobs.finish(finish);
  DEX_RETURN_IF_ERROR(finished.status());
  spdlog::warn("job {}: {}", job.id, finish.why);
  if (!finished->replayed && finished->terminal()) {
    parts_.metrics.attempt_ended(finished->pool, finish.outcome, finished->run_seconds);
    parts_.metrics.job_finished(finished->pool, finished->kind,
                                finish_outcome(finished->state, finished->why_code));
  }
  options_.changed();
  return {};
}

base::Result<iv1::AttemptVerdict> Workers::beat(const std::string& worker,
                                                const iv1::AttemptBeat& attempt) {
  store::JobRepository::Beat beat;
  beat.worker = worker;
  beat.id = attempt.job_id();
  beat.epoch = attempt.epoch();
  beat.sequence = attempt.beat_seq();
  beat.phase = phase_word(attempt.phase());
  beat.progress = progress_bytes(attempt.progress());
  beat.checkpoint = own_checkpoint(attempt.checkpoint(), beat.id, worker);
  beat.events = new_events(beat.id, attempt.events());
  auto reply = parts_.jobs.beat(beat);
  if (reply.status().code() == base::Code::kInvalidArgument)
    reply = keep_lease(std::move(beat), reply.status());
  DEX_RETURN_IF_ERROR(reply.status());
  iv1::AttemptVerdict verdict;
  verdict.set_job_id(attempt.job_id());
  verdict.set_epoch(attempt.epoch());
  verdict.set_verdict(verdict_of(reply->verdict));
  verdict.set_expires_in_ms(reply->remaining_ms);
  verdict.set_checkpoint_request(reply->checkpoint_request);
  return verdict;
}

base::Result<store::JobRepository::BeatReply> Workers::keep_lease(store::JobRepository::Beat beat,
                                                                  const base::Status& refused) {
  spdlog::error("job {}: {} events and the progress of {}'s beat {} are lost: {}", beat.id,
                beat.events.size(), beat.worker, beat.sequence, refused.message());
  beat.events.clear();
  beat.progress.clear();
  return parts_.jobs.beat(beat);
}

base::Result<iv1::HeartbeatResponse> Workers::heartbeat(const iv1::HeartbeatRequest& request) {
  DEX_RETURN_IF_ERROR(check_name("worker_id", request.worker_id(), 64));
  const auto ahead_ms = clock_ahead(request, parts_.clock.now_ms());
  iv1::HeartbeatResponse response;
  bool news = false;
  // Leases first: they count even if the worker must register again.
  for (const auto& attempt : request.attempts()) {
    auto verdict = beat(request.worker_id(), attempt);
    if (!verdict.ok()) {
      // Away is the store for all. What goes wrong with one attempt costs the others no lease.
      if (verdict.status().code() == base::Code::kUnavailable) return verdict.status();
      spdlog::error("job {}: the beat of {} failed: {}", attempt.job_id(), request.worker_id(),
                    verdict.status().to_string());
      continue;
    }
    news = news || attempt.events_size() > 0;
    *response.add_attempts() = std::move(verdict).value();
  }
  iv1::HeartbeatRequest live;  // what routes and adapters need of it
  *live.mutable_engines() = request.engines();
  for (auto& engine : *live.mutable_engines()) {
    engine.clear_kv_usage_ratio();
    engine.set_running(told_load(engine.running() + engine.waiting()));
    engine.clear_waiting();
  }
  DEX_ASSIGN_OR_RETURN(const auto sign, parts_.workers.alive(request.worker_id(),
                                                             live.SerializeAsString(), ahead_ms));
  response.set_unknown(sign.unknown);
  response.set_drain(sign.draining);
  if (!sign.unknown && request.desired_revision() != sign.desired_revision) {
    DEX_ASSIGN_OR_RETURN(const auto wanted, parts_.adapters.wanted());
    for (const auto& record : wanted.adapters) {
      if (record.disabled) continue;
      *response.add_desired() = desired_adapter(record);
    }
    response.set_desired_revision(wanted.revision);
  } else {
    response.set_desired_revision(request.desired_revision());
  }
  if (news || request.engines_size() > 0) options_.changed();
  return response;
}

base::Status Workers::check_result(const iv1::FinishRequest& request) const {
  const auto& result = request.result();
  if (!DataLayout::is_in_attempt(result.uri(), request.job_id(), request.epoch())) {
    return base::invalid_field("result.uri",
                               "'" + result.uri() + "' is not below this attempt's directory");
  }
  auto folder = parts_.layout.absolute(result.uri());
  DEX_RETURN_IF_ERROR(folder.status());
  const auto manifest = base::read_file(*folder / "checksums.json", kLargestManifest);
  if (!manifest.ok()) {
    return base::invalid_field("result.uri",
                               "has no checksums.json: " + manifest.status().message());
  }
  if (base::sha256_hex(*manifest) == result.manifest_sha256()) return {};
  return base::invalid_field("result.manifest_sha256", "is not the hash of checksums.json");
}

v1::OutOfMemory Workers::post_mortem(const iv1::FinishRequest& request) {
  v1::OutOfMemory out = request.out_of_memory();
  // Both are not the worker's to say here, and could be long.
  out.clear_retry_with();
  out.clear_nearest_fit();
  // Without the spec or its model the rest still holds.
  const auto record = parts_.jobs.get(request.tenant(), request.job_id());
  if (!record.ok()) return out;
  const auto spec = effective_spec(record->spec);
  const auto model = parts_.models.find(core::base_model_of(spec.model()));
  if (!model.ok()) return out;
  const core::SettingChanges fit = core::nearest_fit(spec, *model, out);
  out.mutable_nearest_fit()->insert(fit.begin(), fit.end());
  return out;
}

base::Result<iv1::FinishResponse> Workers::finish(const iv1::FinishRequest& request) {
  DEX_RETURN_IF_ERROR(check_name("worker_id", request.worker_id(), 64));
  if (request.outcome() == iv1::OUTCOME_SUCCESS) DEX_RETURN_IF_ERROR(check_result(request));
  store::JobRepository::Finish finish;
  finish.worker = request.worker_id();
  finish.id = request.job_id();
  finish.epoch = request.epoch();
  finish.outcome = word(request.outcome());
  if (request.outcome() == iv1::OUTCOME_SUCCESS) {
    finish.result_uri = request.result().uri();
    finish.result_sha256 = request.result().manifest_sha256();
    finish.result = request.result().SerializeAsString();
    finish.trained_tokens = request.result().trained_tokens();
  }
  finish.checkpoint = own_checkpoint(request.checkpoint(), finish.id, finish.worker);
  finish.why_code = request.code();
  v1::JobError details;
  details.set_param(request.param());
  if (request.progress().step() > 0) details.set_step(request.progress().step());
  if (request.has_out_of_memory()) *details.mutable_out_of_memory() = post_mortem(request);
  finish.why = (request.message() + fit_text(details.out_of_memory())).substr(0, kLargestWhy);
  finish.why_details = details.SerializeAsString();
  finish.progress = progress_bytes(request.progress());
  finish.events = new_events(finish.id, request.events());
  finish.backoff_factor = 0.8 + 0.4 * base::uniform(parts_.random);
  DEX_ASSIGN_OR_RETURN(const auto finished, parts_.jobs.finish(finish));
  if (finished.lost) {
    parts_.metrics.stale_finish();
    spdlog::warn("job {} epoch {}: finish of {} came after the lease was lost", finish.id,
                 finish.epoch, finish.worker);
  } else if (!finished.replayed) {
    spdlog::info("job {} epoch {} ended as {}: {}", finish.id, finish.epoch, finish.outcome,
                 finished.state);
    parts_.metrics.attempt_ended(finished.pool, finish.outcome, finished.run_seconds);
    if (finished.terminal()) {
      parts_.metrics.job_finished(finished.pool, finished.kind,
                                  finish_outcome(finished.state, finished.why_code));
    }
    options_.changed();
  }
  iv1::FinishResponse response;
  response.set_state(finished.state);
  return response;
}

base::Result<iv1::DrainResponse> Workers::drain(const iv1::DrainRequest& request) {
  DEX_RETURN_IF_ERROR(check_name("worker_id", request.worker_id(), 64));
  const auto sign = request.gone() ? parts_.workers.gone(request.worker_id())
                                   : parts_.workers.drain(request.worker_id());
  DEX_RETURN_IF_ERROR(sign.status());
  spdlog::info("worker {} {}", request.worker_id(), request.gone() ? "is gone" : "drains");
  options_.changed();
  return iv1::DrainResponse{};
}

}  // namespace dex::server
