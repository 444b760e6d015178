#include "scheduler/server/sweeper.h"

#include <spdlog/spdlog.h>

#include "services/base/signals.h"

namespace dex::server {

Sweeper::Sweeper(store::Store& store, Metrics& metrics, const base::Clock& clock, Options options)
    : store_(store),
      metrics_(metrics),
      clock_(clock),
      options_(std::move(options)),
      reconciler_(store),
      health_(base::unavailable("STORE_UNAVAILABLE", "the store has not answered yet")),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Sweeper::~Sweeper() {
  stop();
}

void Sweeper::request_stop() {
  thread_.request_stop();
}

void Sweeper::stop() {
  request_stop();
  if (thread_.joinable()) thread_.join();
}

base::Status Sweeper::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

void Sweeper::set_health(base::Status status) {
  const std::lock_guard lock(mutex_);
  if (status.ok() != health_.ok() || status.message() != health_.message()) {
    if (status.ok()) spdlog::info("the store is ready");
    if (!status.ok()) spdlog::error("the store is not ready: {}", status.message());
  }
  health_ = std::move(status);
}

void Sweeper::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const int64_t now = clock_.steady_ms();
    base::Status status = sweep();
    if (stop.stop_requested()) return;
    if (!status.ok()) {
      metrics_.redis_state(false, false);
      next_check_ms_ = 0;  // another Redis may come back
      reconciler_.restart();
      set_health(status);
    } else {
      if (now >= next_check_ms_) {
        status = check();
        next_check_ms_ = now + (status.ok() ? options_.check_ms : options_.retry_ms);
        set_health(status);
      }
      if (status.ok()) reconcile(stop);
    }
    if (base::wait_for_stop(stop, status.ok() ? options_.sweep_ms : options_.retry_ms)) return;
  }
}

base::Status Sweeper::sweep() {
  const auto swept = store_.sweep();
  DEX_RETURN_IF_ERROR(swept.status());
  metrics_.swept(*swept, static_cast<double>(clock_.now_ms()) / 1000);
  if (swept->leases > 0)
    spdlog::warn("{} leases ran out; their jobs go on elsewhere", swept->leases);
  if (swept->workers_lost > 0)
    spdlog::warn("{} workers are silent and count as lost", swept->workers_lost);
  // What a sweep has met may lie in more sets, also in those that are looked at by now.
  if (swept->orphans > 0) reconcile_due_ = true;
  if (swept->news > 0 && options_.changed) options_.changed();
  const auto stats = store_.stats();
  DEX_RETURN_IF_ERROR(stats.status());
  metrics_.counted(*stats);
  return {};
}

base::Status Sweeper::check() {
  const auto wrong = store_.durability();
  DEX_RETURN_IF_ERROR(wrong.status());
  metrics_.redis_state(true, wrong->empty());
  const auto ratio = store_.memory_ratio();
  DEX_RETURN_IF_ERROR(ratio.status());
  metrics_.redis_memory(*ratio);
  if (wrong->empty()) return {};
  return base::failed_precondition("STORE_NOT_DURABLE",
                                   "Redis would not keep what it acknowledges: " + *wrong);
}

// A part of it: at scale the whole takes longer than the gap after which a sweep takes the platform
// for one that was away (jobs.md §4), and then no dead worker is noticed for a settle window.
void Sweeper::reconcile(const std::stop_token& stop) {
  const int64_t begin = clock_.steady_ms();
  if (!reconciling_ && !reconcile_due_ && begin < next_reconcile_ms_) return;
  if (!reconciling_) reconcile_due_ = false;
  reconciling_ = true;
  do {
    const auto part = reconciler_.step();
    if (!part.ok()) return;  // it begins anew after the next sweep
    metrics_.reconciled(part->fixes);
    if (part->done) {
      reconciling_ = false;
      next_reconcile_ms_ = clock_.steady_ms() + options_.reconcile_ms;
      return;
    }
  } while (!stop.stop_requested() && clock_.steady_ms() - begin < options_.sweep_ms / 2);
}

}  // namespace dex::server
