#include "scheduler/server/metrics.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "scheduler/core/public_state.h"
#include "scheduler/server/job_view.h"

namespace dex::server {

namespace {

const std::vector<double>& long_bounds() {  // seconds: a second to a week
  static const std::vector<double> bounds = {1,    5,     15,    60,    300,   900,
                                             3600, 10800, 43200, 86400, 604800};
  return bounds;
}

// Redis' own commands count as one label each; there are few in this program.
std::string label(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

// "queued", "running": the public state's name as api.md has it, in lower case.
std::string state_label(const store::Store::JobCount& job) {
  v1::Progress progress;
  (void)progress.ParseFromString(job.progress);
  const auto state =
      core::public_state({job.state, job.want, phase_of(job.phase), progress.step(), ""});
  constexpr std::string_view kPrefix = "JOB_STATE_";
  return label(v1::JobState_Name(state).substr(kPrefix.size()));
}

}  // namespace

Metrics::Metrics(monitor::Registry& r)
    : jobs_(r.gauges("dex_jobs", "Jobs that are not finished, by public state.")),
      workers_(r.gauges("dex_workers",
                        "Workers by pool and state; one of several pools counts in each.")),
      oldest_ready_(r.gauges("dex_queue_oldest_ready_seconds",
                             "Age of the oldest job that could be served now.")),
      submits_(r.counters("dex_job_submits_total", "Submissions by outcome.")),
      claims_(r.counters("dex_job_claims_total", "Jobs handed to workers.")),
      attempts_(r.counters("dex_job_attempts_total", "Attempts that ended, by how.")),
      finishes_(r.counters("dex_job_finishes_total", "Jobs that became terminal, by outcome.")),
      queue_wait_(r.histogram("dex_queue_wait_seconds", "From the place in the queue to the claim.",
                              long_bounds())),
      job_run_(r.histogram("dex_job_run_seconds", "Time of one attempt.", long_bounds())),
      leases_lost_(r.counter("dex_lease_lost_total", "Leases that ran out and were reaped.")),
      stale_finishes_(
          r.counter("dex_stale_finish_total", "Finishes of attempts that owned nothing any more.")),
      reconcile_fixes_(
          r.counter("dex_reconcile_fixes_total", "Set members that disagreed with a job's state.")),
      last_sweep_(
          r.gauge("dex_reaper_last_sweep_timestamp_seconds", "When the last sweep succeeded.")),
      redis_up_(r.gauge("dex_redis_up", "1: Redis answers.")),
      redis_durable_(r.gauge("dex_redis_durable", "1: AOF on, fsync always, noeviction.")),
      redis_memory_(r.gauge("dex_redis_memory_ratio", "used_memory over maxmemory.")),
      redis_calls_(r.histograms("dex_redis_call_duration_seconds", "Calls to Redis by script.")),
      redis_errors_(r.counters("dex_redis_errors_total", "Failed calls to Redis by class.")) {
  for (const char* kind : {"io", "transient", "noscript", "forbidden", "other"}) {
    redis_errors_.Add({{"class", kind}});  // a series that exists can be alerted on
  }
}

void Metrics::set(prometheus::Family<prometheus::Gauge>& family, const monitor::Labels& labels,
                  double value) {
  family.Add(labels).Set(value);
}

void Metrics::begin_series(const std::string& pool) {
  claims_.Add({{"pool", pool}});
  attempts_.Add({{"pool", pool}, {"end", "worker_lost"}});
  for (const char* kind : {"finetune", "evaluation"}) {
    for (const char* outcome : {"succeeded", "poison_job"}) {
      finishes_.Add({{"pool", pool}, {"kind", kind}, {"outcome", outcome}});
    }
  }
}

void Metrics::submitted(const std::string& kind, const std::string& outcome) {
  submits_.Add({{"kind", kind}, {"outcome", outcome}}).Increment();
}

void Metrics::submitted(const std::string& kind,
                        const base::Result<store::JobRepository::Submitted>& answer) {
  if (answer.ok()) return submitted(kind, answer->replayed ? "replayed" : "created");
  const bool quota = answer.status().code() == base::Code::kResourceExhausted;
  submitted(kind, quota ? "quota" : "refused");
}

void Metrics::claimed(const std::string& pool, double waited_seconds) {
  claims_.Add({{"pool", pool}}).Increment();
  queue_wait_.Observe(waited_seconds);
}

void Metrics::attempt_ended(const std::string& pool, const std::string& end, double run_seconds) {
  attempts_.Add({{"pool", pool}, {"end", end}}).Increment();
  job_run_.Observe(run_seconds);
}

void Metrics::job_finished(const std::string& pool, const std::string& kind,
                           const std::string& outcome) {
  finishes_.Add({{"pool", pool}, {"kind", kind}, {"outcome", outcome}}).Increment();
}

void Metrics::swept(const store::Store::Swept& swept, double unix_seconds) {
  leases_lost_.Increment(static_cast<double>(swept.leases));
  for (const auto& end : swept.ends) {
    if (end.lease) attempts_.Add({{"pool", end.pool}, {"end", "worker_lost"}}).Increment();
    if (end.state == "FAILED") job_finished(end.pool, end.kind, end.why_code);
    if (end.state == "CANCELLED") {
      job_finished(end.pool, end.kind,
                   end.why_code == "deadline_exceeded" ? "expired" : "cancelled");
    }
  }
  last_sweep_.Set(unix_seconds);
}

void Metrics::redis_call(std::string_view name, double seconds, std::string_view error) {
  redis_calls_.Add({{"script", label(name)}}, monitor::latency_bounds()).Observe(seconds);
  if (!error.empty()) redis_errors_.Add({{"class", std::string(error)}}).Increment();
}

void Metrics::counted(const store::Store::Stats& stats) {
  for (const auto& pool : stats.pools) {
    set(oldest_ready_, {{"pool", pool.pool}}, pool.oldest_ready_seconds);
    begin_series(pool.pool);
  }

  // A state of a pool, or a group of workers, that has nobody left reads 0 rather than its last
  // count.
  const std::lock_guard lock(mutex_);
  for (auto& [key, count] : job_counts_) count = 0;
  for (const auto& job : stats.jobs) {
    job_counts_[{job.pool, state_label(job)}] += static_cast<double>(job.count);
  }
  for (const auto& [key, count] : job_counts_) {
    set(jobs_, {{"pool", key.first}, {"state", key.second}}, count);
  }
  for (auto& [key, count] : worker_counts_) count = 0;
  for (const auto& [pools, state] : stats.workers) {
    // A worker of several pools is one of each of them; one that only serves is of none.
    std::istringstream names(pools);
    std::string pool;
    if (!(names >> pool)) pool = "none";
    do ++worker_counts_[{pool, state}];
    while (names >> pool);
  }
  for (const auto& [key, count] : worker_counts_) {
    set(workers_, {{"pool", key.first}, {"state", key.second}}, count);
  }
}

}  // namespace dex::server
