#include "scheduler/server/start_estimates.h"

#include <algorithm>
#include <string>
#include <vector>

#include "dex/v1/events.pb.h"
#include "scheduler/core/start_estimate.h"
#include "scheduler/server/times.h"

namespace dex::server {

namespace {

constexpr int kMost = 100;  // workers and waiting jobs that are looked at: a page of the store

bool may_run(const store::WorkerRecord& worker, const std::string& pool,
             const std::string& base_model) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return worker.state == "up" && has(worker.pools, pool) &&
         (worker.models.empty() || has(worker.models, base_model));
}

core::RunningJob running_job(const store::JobRecord& job, int64_t now_ms) {
  core::RunningJob running;
  running.elapsed_seconds =
      static_cast<double>(std::max<int64_t>(0, now_ms - job.attempt_ms)) / 1000;
  running.estimated_seconds = job.cost_seconds;
  v1::Progress progress;
  // Before its first step a trainer knows no rate.
  if (progress.ParseFromString(job.progress) && progress.step() > 0 &&
      progress.estimated_remaining_seconds() > 0)
    running.remaining_seconds = progress.estimated_remaining_seconds();
  return running;
}

}  // namespace

base::Result<std::optional<google::protobuf::Timestamp>> StartEstimates::of(
    const store::JobRecord& job, const std::string& base_model) {
  using Nothing = std::optional<google::protobuf::Timestamp>;
  const int64_t now_ms = parts_.clock.now_ms();
  DEX_ASSIGN_OR_RETURN(const auto queue, parts_.operators.queue(job.pool, kMost));
  std::vector<double> ahead;
  bool found = false;
  for (const auto& waiting : queue.order) {
    found = waiting.id == job.id;
    if (found) break;
    // What a quota or a lacking model holds back takes no slot meanwhile.
    if (waiting.in_ring && !waiting.lacks_model) ahead.push_back(waiting.cost_seconds);
  }
  if (!found) return Nothing();
  DEX_ASSIGN_OR_RETURN(const auto workers, parts_.operators.workers("", kMost));
  if (workers.size() == kMost) return Nothing();
  int free_slots = 0;
  std::vector<core::RunningJob> running;
  for (const auto& worker : workers) {
    if (!may_run(worker.record, job.pool, base_model)) continue;
    free_slots += std::max(0, worker.record.slots - static_cast<int>(worker.attempts.size()));
    for (const auto& attempt : worker.attempts) {
      const auto record = parts_.jobs.get(attempt.tenant, attempt.job);
      // It may have ended just now.
      if (record.ok()) running.push_back(running_job(*record, now_ms));
    }
  }
  const auto seconds = core::starts_in_seconds(free_slots, running, ahead);
  if (!seconds) return Nothing();
  return Nothing(timestamp(now_ms + static_cast<int64_t>(*seconds * 1000)));
}

}  // namespace dex::server
