#include "worker/agent/slot.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "services/base/process_lock.h"
#include "services/base/signals.h"

namespace dex::agent {

namespace {
// FinishResponse::state of an attempt that owns its job no more: an answer, so nothing is repeated.
constexpr const char* kLost = "LOST";
}  // namespace

Slot::Slot(Options options, SchedulerClient& client, Heartbeat& heartbeat, AttemptList& attempts,
           DiskGate& disk, const DataPaths& paths, const std::vector<BaseModelEntry>& models,
           WorkerMetrics& metrics, const base::Clock& clock, base::RandomSource& random)
    : options_(std::move(options)),
      client_(client),
      heartbeat_(heartbeat),
      attempts_(attempts),
      disk_(disk),
      paths_(paths),
      models_(models),
      metrics_(metrics),
      clock_(clock),
      random_(random),
      claim_id_(new_claim_id()) {}

void Slot::run(const std::stop_token& drain) {
  const int64_t begun_ms = clock_.steady_ms();
  while (!drain.stop_requested() && !over(begun_ms)) {
    if (may_claim()) {
      claim(drain);
    } else {
      base::wait_for_stop(drain, options_.retry_ms);
    }
  }
  metrics_.set_state(options_.worker_id, "draining");
  if (claim_unheard_) give_back_unheard_claim();
}

// A claim that may have been granted unheard is no idleness: it is repeated until it is answered.
bool Slot::over(int64_t begun_ms) const {
  if (!options_.once) return false;
  return worked_ || (!claim_unheard_ && clock_.steady_ms() - begun_ms >= options_.once_idle_ms);
}

bool Slot::may_claim() {
  const bool disk = disk_.open();
  const std::string now = out_of_service_              ? "out_of_service"
                          : !disk                      ? "disk_full"
                          : heartbeat_.told_to_drain() ? "draining"
                                                       : "up";
  if (now != state_) {
    metrics_.set_state(options_.worker_id, now);
    if (now != "up") spdlog::warn("slot {} claims nothing: {}", options_.index, now);
    state_ = now;
  }
  return now == "up" && heartbeat_.registered();
}

iv1::ClaimRequest Slot::claim_request(int64_t wait_ms) const {
  iv1::ClaimRequest request;
  request.set_worker_id(options_.worker_id);
  request.set_slot(options_.index);
  request.set_claim_id(claim_id_);
  for (const auto& pool : options_.pools) request.add_pools(pool);
  request.set_wait_ms(wait_ms);
  return request;
}

void Slot::claim(const std::stop_token& drain) {
  claim_unheard_ = true;
  const int64_t wait_ms = options_.once ? std::min(options_.claim_wait_ms, options_.once_idle_ms)
                                        : options_.claim_wait_ms;
  const auto reply = client_.claim(claim_request(wait_ms), drain);
  if (!reply.ok()) {
    // The id stays: the scheduler answers the same claim with the same job.
    if (!no_answer(reply.status())) spdlog::error("claim refused: {}", reply.status().to_string());
    base::wait_for_stop(drain, options_.retry_ms);
    return;
  }
  claim_unheard_ = false;
  claim_id_ = new_claim_id();
  switch (reply->answer_case()) {
    case iv1::ClaimResponse::kJob:
      work(reply->job(), drain);
      break;
    case iv1::ClaimResponse::kUnknown:
      heartbeat_.forget_registration();
      base::wait_for_stop(drain, options_.retry_ms);
      break;
    case iv1::ClaimResponse::kDrain:
      base::wait_for_stop(drain, options_.retry_ms);
      break;
    default:
      break;  // none: the scheduler has waited for us
  }
}

// The drain cut a claim short that may have been granted: without this its job would wait for the
// end of a lease that nobody holds.
void Slot::give_back_unheard_claim() {
  const auto reply = client_.claim(claim_request(0), {});
  if (!reply.ok() || reply->answer_case() != iv1::ClaimResponse::kJob) return;
  iv1::FinishRequest request;
  request.set_worker_id(options_.worker_id);
  request.set_job_id(reply->job().job_id());
  request.set_epoch(reply->job().epoch());
  request.set_outcome(iv1::OUTCOME_RELEASE);
  if (reply->job().has_checkpoint()) *request.mutable_checkpoint() = reply->job().checkpoint();
  const auto finished = client_.finish(request);
  spdlog::info("job {} given back before it started: {}", request.job_id(),
               finished.status().to_string());
}

void Slot::work(const iv1::ClaimedJob& job, const std::stop_token& drain) {
  worked_ = true;
  auto options = options_.attempt;
  options.lease_ms = heartbeat_.lease_ms();
  options.worker_id = options_.worker_id;
  auto attempt = std::make_shared<Attempt>(job, options, paths_, models_, clock_, metrics_);
  attempts_.add(attempt);  // from here on its lease is renewed
  heartbeat_.poke();
  Verdict verdict;
  if (auto lock = take_lock(drain)) {
    const std::stop_callback on_drain(drain, [&attempt] { attempt->order(Order::kDrain); });
    verdict = attempt->run(lock->get());
  } else {
    verdict.outcome = iv1::OUTCOME_RELEASE;
    verdict.message = "gpu_busy: another process holds " + options_.lock_file.string();
    verdict.out_of_service = !drain.stop_requested();
  }
  if (verdict.out_of_service) {
    out_of_service_ = true;
    spdlog::error("slot {} goes out of service: {}", options_.index, verdict.message);
  }
  if (verdict.outcome == iv1::OUTCOME_DISK_FULL) disk_.found_full();
  if (verdict.report) {
    deliver_events(*attempt, drain);
    finish(*attempt, verdict, drain);
  }
  attempts_.remove(attempt);
  if (verdict.lacking) base::wait_for_stop(drain, options_.lacking_wait_ms);
}

// The last events travel in beats like all others, so that none is stored twice.
void Slot::deliver_events(Attempt& attempt, const std::stop_token& drain) {
  const int64_t last_chance = clock_.steady_ms() + options_.farewell_ms;
  heartbeat_.poke();
  while (!attempt.log().wait_delivered(options_.retry_ms)) {
    if (attempt.ordered() == Order::kLost) return;
    if (drain.stop_requested() && clock_.steady_ms() > last_chance) return;
    heartbeat_.poke();
  }
}

void Slot::finish(Attempt& attempt, const Verdict& verdict, const std::stop_token& drain) {
  iv1::FinishRequest request;
  request.set_worker_id(options_.worker_id);
  request.set_job_id(attempt.job_id());
  request.set_epoch(attempt.epoch());
  request.set_outcome(verdict.outcome);
  request.set_code(verdict.code);
  request.set_message(verdict.message);
  request.set_param(verdict.param);
  if (verdict.out_of_memory) {
    *request.mutable_out_of_memory() = *verdict.out_of_memory;
    request.set_tenant(attempt.tenant());
  }
  if (attempt.result()) *request.mutable_result() = *attempt.result();
  if (const auto checkpoint = attempt.log().checkpoint()) {
    *request.mutable_checkpoint() = *checkpoint;
  }
  *request.mutable_progress() = attempt.log().progress();

  const int64_t last_chance = clock_.steady_ms() + options_.farewell_ms;
  while (attempt.ordered() != Order::kLost) {
    const auto reply = client_.finish(request);
    if (reply.ok() && reply->state() == kLost) {
      spdlog::warn("job {} epoch {}: the lease was lost, its end counts for nothing",
                   attempt.job_id(), attempt.epoch());
      return;
    }
    if (reply.ok()) {
      spdlog::info("job {} epoch {} is now {}", attempt.job_id(), attempt.epoch(), reply->state());
      return;
    }
    if (!no_answer(reply.status()) && request.outcome() == iv1::OUTCOME_SUCCESS) {
      // What the trainer left is not what it said: another try, and the job's owner reads why.
      spdlog::error("job {}: result refused: {}", attempt.job_id(), reply.status().to_string());
      request.set_outcome(iv1::OUTCOME_FAIL_RETRY);
      request.set_code("internal");
      request.set_message("result refused: " + reply.status().message());
      request.clear_result();
      continue;
    }
    if (!no_answer(reply.status())) {
      // The lease runs out and the job goes on elsewhere.
      spdlog::error("job {}: finish refused: {}", attempt.job_id(), reply.status().to_string());
      return;
    }
    if (drain.stop_requested() && clock_.steady_ms() > last_chance) {
      spdlog::warn("job {}: no answer to finish, left to its lease", attempt.job_id());
      return;
    }
    base::wait_for_stop({}, options_.retry_ms);
  }
}

std::optional<base::Fd> Slot::take_lock(const std::stop_token& drain) {
  const int64_t last_chance = clock_.steady_ms() + options_.lock_wait_ms;
  while (true) {
    auto lock = base::lock_file(options_.lock_file);
    if (lock.ok()) return std::move(lock).value();
    spdlog::warn("slot {}: {}", options_.index, lock.status().message());
    if (clock_.steady_ms() >= last_chance) return std::nullopt;
    if (base::wait_for_stop(drain, options_.retry_ms)) return std::nullopt;
  }
}

std::string Slot::new_claim_id() {
  std::array<uint8_t, 16> bytes{};
  random_.fill(bytes);
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (const uint8_t byte : bytes) {
    id += kDigits[byte >> 4];
    id += kDigits[byte & 15];
  }
  return id;
}

}  // namespace dex::agent
