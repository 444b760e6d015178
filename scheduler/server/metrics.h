#pragma once

#include <map>
#include <mutex>
#include <string>

#include "scheduler/store/job_repository.h"
#include "scheduler/store/store.h"
#include "services/base/status.h"
#include "services/monitor/registry.h"

namespace dex::server {

// The scheduler's metrics of jobs.md §12. One object a process; thread-safe.
class Metrics {
 public:
  explicit Metrics(monitor::Registry& registry);  // outlives this object

  void submitted(const std::string& kind,
                 const std::string& outcome);  // "created", "replayed", a reason
  // As the store answered: created, replayed, quota or refused.
  void submitted(const std::string& kind,
                 const base::Result<store::JobRepository::Submitted>& answer);
  void claimed(const std::string& pool, double waited_seconds);  // not for a replayed claim
  // One attempt has ended; `end` is the worker's outcome.
  void attempt_ended(const std::string& pool, const std::string& end, double run_seconds);
  // A job has become terminal; `outcome`: succeeded, cancelled, expired or the error code.
  void job_finished(const std::string& pool, const std::string& kind, const std::string& outcome);
  void swept(const store::Store::Swept& swept, double unix_seconds);
  void stale_finish() { stale_finishes_.Increment(); }
  void reconciled(int64_t fixes) { reconcile_fixes_.Increment(static_cast<double>(fixes)); }
  void redis_call(std::string_view name, double seconds, std::string_view error);
  void redis_state(bool up, bool durable) {
    redis_up_.Set(up ? 1 : 0);
    redis_durable_.Set(durable ? 1 : 0);
  }
  void redis_memory(double ratio) { redis_memory_.Set(ratio); }
  void counted(const store::Store::Stats& stats);

 private:
  void set(prometheus::Family<prometheus::Gauge>& family, const monitor::Labels& labels,
           double value);
  // Series that alerts count from nought: an increase is only seen of one that was there before.
  void begin_series(const std::string& pool);

  prometheus::Family<prometheus::Gauge>& jobs_;
  prometheus::Family<prometheus::Gauge>& workers_;
  prometheus::Family<prometheus::Gauge>& oldest_ready_;
  prometheus::Family<prometheus::Counter>& submits_;
  prometheus::Family<prometheus::Counter>& claims_;
  prometheus::Family<prometheus::Counter>& attempts_;
  prometheus::Family<prometheus::Counter>& finishes_;
  prometheus::Histogram& queue_wait_;
  prometheus::Histogram& job_run_;
  prometheus::Counter& leases_lost_;
  prometheus::Counter& stale_finishes_;
  prometheus::Counter& reconcile_fixes_;
  prometheus::Gauge& last_sweep_;
  prometheus::Gauge& redis_up_;
  prometheus::Gauge& redis_durable_;
  prometheus::Gauge& redis_memory_;
  prometheus::Family<prometheus::Histogram>& redis_calls_;
  prometheus::Family<prometheus::Counter>& redis_errors_;
  std::mutex mutex_;
  // By pool and state; guarded by mutex_.
  std::map<std::pair<std::string, std::string>, double> job_counts_, worker_counts_;
};

}  // namespace dex::server
