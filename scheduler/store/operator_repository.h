#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/store/records.h"
#include "scheduler/store/store.h"

namespace dex::store {

// What operators ask of the store and say to it: quotas, workers, queues. Thread-safe; blocks like
// JobRepository.
class OperatorRepository {
 public:
  explicit OperatorRepository(Store& store) : store_(store) {}  // the store outlives this object

  struct Quota {
    double weight = 1;
    int64_t max_queued = 0, max_running = 0;
    double seconds_a_day = 0;  // of a device; 0: no limit
    double seconds_today = 0;
    int64_t queued = 0, running = 0;
    std::string revision;  // the etag
  };
  // Of a tenant that nobody set anything for: the defaults.
  base::Result<Quota> quota(const std::string& tenant);

  struct QuotaChange {  // what is not set stays
    std::optional<double> weight, seconds_a_day;
    std::optional<int64_t> max_queued, max_running;
    std::string etag;  // empty: whatever it is now
  };
  // `caller`: whose request it is. True: its repeat. ETAG_MISMATCH, IDEMPOTENCY_CONFLICT.
  base::Result<bool> set_quota(const std::string& tenant, const QuotaChange& change,
                               const std::string& caller, const RequestKey& request);

  struct Attempt {
    std::string job, tenant;
  };
  struct SeenWorker {
    WorkerRecord record;
    double heartbeat_age_seconds = 0;
    std::vector<Attempt> attempts;  // that it runs
  };
  // Those that are up or draining, by id, at most `count` (≤ 100) after `after`; fewer: there are
  // no more.
  base::Result<std::vector<SeenWorker>> workers(const std::string& after, int count);
  // RESOURCE_NOT_FOUND for one that is not there.
  base::Result<SeenWorker> worker(const std::string& id);
  // On: it gets no jobs, though it is there, until it is off again. True: a repeat.
  base::Result<bool> cordon(const std::string& id, bool on, const std::string& caller,
                            const RequestKey& request);

  base::Result<std::vector<std::string>> pools();  // sorted
  struct Waiting {
    std::string id, tenant, kind;
    int priority = 0;
    double waiting_seconds = 0;
    bool in_ring = false, lacks_model = false;  // as JobRecord's
    double cost_seconds = 0;                    // likewise
  };
  struct PoolQueue {
    int64_t ready = 0, running = 0, workers = 0;
    double oldest_seconds = 0;
    std::vector<Waiting> order;  // the first `count` (≤ 100), by priority and age
  };
  base::Result<PoolQueue> queue(const std::string& pool, int count);

 private:
  base::Result<std::vector<SeenWorker>> page(const std::string& after, int count,
                                             const std::string& only);
  Store& store_;
};

}  // namespace dex::store
