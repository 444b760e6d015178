#include "worker/agent/heartbeat.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "services/base/files.h"

namespace dex::agent {

Heartbeat::Heartbeat(Options options, SchedulerClient& client, AttemptList& attempts,
                     Engines engines, WorkerMetrics& metrics, const base::Clock& clock)
    : options_(std::move(options)),
      client_(client),
      attempts_(attempts),
      engines_(std::move(engines)),
      metrics_(metrics),
      clock_(clock) {}

void Heartbeat::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const bool answered = registered_ ? beat_once() : register_once();
    // A fresh registration beats at once: the routes of its engine depend on it.
    const bool again = !registered_ && answered;
    wait(answered ? (again ? 0 : beat_ms_) : options_.retry_ms, stop);
  }
}

bool Heartbeat::register_once() {
  const auto reply = client_.register_worker(options_.identity);
  if (!reply.ok()) {
    if (!complained_) spdlog::warn("cannot register yet: {}", reply.status().to_string());
    complained_ = true;
    return false;
  }
  if (reply->lease_ms() > 0) lease_ms_ = reply->lease_ms();
  // At most a third of the lease, whatever was asked for: one beat may be lost, the lease must not.
  const int64_t most = lease_ms_ / 3;
  beat_ms_ = options_.beat_ms > 0 ? options_.beat_ms : reply->beat_ms();
  beat_ms_ = beat_ms_ > 0 ? std::min(beat_ms_, most) : most;
  desired_revision_ = 0;
  registered_ = true;
  complained_ = false;
  spdlog::info("registered as {}: lease {} ms, beat {} ms", options_.identity.worker_id(),
               lease_ms_.load(), beat_ms_);
  poke();
  return true;
}

bool Heartbeat::beat_once() {
  iv1::HeartbeatRequest request;
  request.set_worker_id(options_.identity.worker_id());
  request.set_desired_revision(desired_revision_);
  const auto space = base::free_bytes(options_.data_dir);
  if (space.ok()) request.set_disk_free_bytes(*space);
  const auto ratio = base::free_ratio(options_.data_dir);
  if (ratio.ok()) metrics_.disk_free_ratio.Set(*ratio);
  for (const auto& attempt : attempts_.all()) *request.add_attempts() = attempt->log().beat();
  for (auto& status : engines_.status()) *request.add_engines() = std::move(status);

  // A lease counts from before the beat was sent: the answer's way here must not lengthen it.
  const int64_t sent_ms = clock_.steady_ms();
  request.set_now_ms(clock_.now_ms());
  const auto reply = client_.heartbeat(request);
  if (!reply.ok()) {
    if (!complained_) {
      spdlog::warn("no answer to the heartbeat, the work goes on: {}", reply.status().to_string());
    }
    complained_ = true;
    return false;
  }
  if (complained_) spdlog::info("the scheduler answers again");
  complained_ = false;
  metrics_.heartbeat_timestamp.Set(static_cast<double>(clock_.now_ms()) / 1000.0);
  apply(request, *reply, sent_ms);
  return true;
}

void Heartbeat::apply(const iv1::HeartbeatRequest& request, const iv1::HeartbeatResponse& response,
                      int64_t sent_ms) {
  // Its leases are renewed all the same, and desired adapters come after the registration.
  if (response.unknown()) forget_registration();
  if (response.drain() && !told_to_drain_) spdlog::info("told to take no more work");
  told_to_drain_ = response.drain();
  engines_announced_ =
      !response.unknown() && std::ranges::all_of(request.engines(), [](const auto& engine) {
        return engine.state() == iv1::EngineStatus::STATE_SERVING;
      });
  const auto attempts = attempts_.all();
  for (const auto& verdict : response.attempts()) {
    for (const auto& attempt : attempts) {
      if (attempt->job_id() != verdict.job_id() || attempt->epoch() != verdict.epoch()) continue;
      attempt->answered(sent_ms);
      for (const auto& beat : request.attempts()) {
        if (beat.job_id() == verdict.job_id() && beat.epoch() == verdict.epoch()) {
          attempt->log().answered(beat.beat_seq());
        }
      }
      if (!verdict.checkpoint_request().empty())
        attempt->ask_checkpoint(verdict.checkpoint_request());
      switch (verdict.verdict()) {
        case iv1::AttemptVerdict::VERDICT_PAUSE:
          attempt->order(Order::kPause);
          break;
        case iv1::AttemptVerdict::VERDICT_CANCEL:
          attempt->order(Order::kCancel);
          break;
        case iv1::AttemptVerdict::VERDICT_LOST:
          spdlog::warn("job {} epoch {}: lease lost", attempt->job_id(), attempt->epoch());
          attempt->order(Order::kLost);
          break;
        default:
          break;
      }
    }
  }
  if (!response.unknown() && response.desired_revision() != desired_revision_) {
    desired_revision_ = response.desired_revision();
    engines_.set_desired(response.desired());
  }
}

void Heartbeat::poke() {
  {
    const std::lock_guard lock(mutex_);
    poke_ = true;
  }
  poked_.notify_all();
}

void Heartbeat::forget_registration() {
  if (registered_.exchange(false)) spdlog::warn("the scheduler does not know this worker");
  poke();
}

void Heartbeat::wait(int64_t ms, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  poked_.wait_for(lock, stop, std::chrono::milliseconds(ms), [this] { return poke_; });
  poke_ = false;
}

}  // namespace dex::agent
