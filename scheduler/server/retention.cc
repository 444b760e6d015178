#include "scheduler/server/retention.h"

#include <spdlog/spdlog.h>

#include "scheduler/server/leftovers.h"
#include "services/base/process_lock.h"
#include "services/base/signals.h"

namespace dex::server {

namespace {

constexpr int kFinishedPage = 100;

// The store is away for all jobs alike; anything else concerns one job.
bool is_away(const base::Status& status) {
  return status.code() == base::Code::kUnavailable;
}

}  // namespace

Retention::Retention(const Parts& parts, const Options& options)
    : parts_(parts),
      options_(options),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

Retention::~Retention() {
  stop();
}

void Retention::request_stop() {
  thread_.request_stop();
}

void Retention::stop() {
  request_stop();
  if (thread_.joinable()) thread_.join();
}

void Retention::run(const std::stop_token& stop) {
  std::string last_fault;
  while (!stop.stop_requested()) {
    const base::Status status = look(stop);
    if (stop.stop_requested()) return;
    if (!status.ok() && !is_away(status) && status.message() != last_fault)
      spdlog::warn("ended jobs could not be archived or removed: {}", status.message());
    last_fault = status.message();
    base::wait_for_stop(stop, options_.period_ms);
  }
}

base::Status Retention::look(const std::stop_token& stop) {
  const auto lock = base::lock_file(parts_.layout.retention_lock());
  DEX_RETURN_IF_ERROR(lock.status());
  if (parts_.clock.steady_ms() >= next_purge_ms_) {
    DEX_RETURN_IF_ERROR(purge_old(stop));
    next_purge_ms_ = parts_.clock.steady_ms() + options_.purge_period_ms;
    // Once more from the oldest: a clock that was set back has put jobs behind the cursor.
    cursor_ms_ = -1;
    cursor_id_.clear();
  }
  return archive_ended(stop);
}

base::Status Retention::archive_ended(const std::stop_token& stop) {
  const int64_t latest = parts_.clock.now_ms() - options_.archive_after_ms;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto page,
                         parts_.jobs.finished(cursor_ms_, cursor_id_, kFinishedPage));
    for (const auto& job : page) {
      if (stop.stop_requested() || job.finished_ms > latest) return {};  // the rest is younger
      if (!job.tenant.empty() && !job.purging && job.archived < job.sequence) {
        const base::Status status = parts_.events.archive(job);
        if (is_away(status)) return status;
        if (!status.ok())
          spdlog::error("job {}: its events could not be archived: {}", job.id, status.message());
      }
      cursor_ms_ = job.finished_ms;
      cursor_id_ = job.id;
    }
    if (static_cast<int>(page.size()) < kFinishedPage) return {};
  }
}

base::Status Retention::purge_old(const std::stop_token& stop) {
  const int64_t latest = parts_.clock.now_ms() - options_.keep_ms;
  int64_t ms = -1, purged = 0;
  std::string id;
  while (!stop.stop_requested()) {
    DEX_ASSIGN_OR_RETURN(const auto page, parts_.jobs.finished(ms, id, kFinishedPage));
    for (const auto& job : page) {
      ms = job.finished_ms;
      id = job.id;
      if (job.tenant.empty() || (job.finished_ms > latest && !job.purging)) continue;
      const base::Status status = purge(job);
      if (is_away(status)) return status;
      if (!status.ok()) spdlog::error("job {} could not be removed: {}", job.id, status.message());
      purged += status.ok() ? 1 : 0;
    }
    if (static_cast<int>(page.size()) < kFinishedPage) break;
  }
  if (purged > 0) spdlog::info("removed {} jobs that ended long ago", purged);
  return {};
}

base::Status Retention::purge(const store::JobRepository::FinishedJob& job) {
  const auto marked = parts_.jobs.purge_mark("", job.id, options_.keep_ms);
  // Redriven since it was seen, or not that old by the store's clock: it does not go now.
  if (marked.status().reason() == "JOB_STATE_CONFLICT") return {};
  DEX_RETURN_IF_ERROR(marked.status());
  if (*marked == store::JobRepository::Purge::kGone) return {};
  const auto record = parts_.jobs.get(job.tenant, job.id);
  if (record.status().code() == base::Code::kNotFound) return {};
  DEX_RETURN_IF_ERROR(record.status());
  DEX_ASSIGN_OR_RETURN(const std::string kept, published_adapter(parts_.adapters, *record));
  DEX_RETURN_IF_ERROR(remove_job_artefacts(parts_.layout, *record, kept));
  return parts_.jobs.purge_commit("", job.id).status();
}

}  // namespace dex::server
