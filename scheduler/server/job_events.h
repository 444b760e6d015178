#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dex/v1/events.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/store/job_repository.h"
#include "services/base/status.h"

namespace dex::server {

// A job's events, wherever they lie: in the store's log, and some time after the job has ended in
// events.jsonl in its directory, of which the log then keeps only the last 50 (jobs.md §1). Waits
// for store and disk. Thread-safe.
class JobEvents {
 public:
  // Both outlive this object.
  JobEvents(store::JobRepository& jobs, const DataLayout& layout) : jobs_(jobs), layout_(layout) {}

  // Those with sequence > after, oldest first; fewer than `count`: there are no more. Ask only for
  // a job that the repository showed to its owner. ARTIFACT_CORRUPT for an archive that can't be
  // read.
  base::Result<std::vector<v1::FineTuningEvent>> read(const std::string& tenant,
                                                      const std::string& id, int64_t after,
                                                      int count);

  // The other way round: those with sequence < before (0: all), newest first. Cheap for the newest,
  // which the log has; what lies only in the archive is found by reading from its beginning.
  base::Result<std::vector<v1::FineTuningEvent>> read_back(const std::string& tenant,
                                                           const std::string& id, int64_t before,
                                                           int count);

  // Writes to the archive what only the log has, one event a line of protobuf JSON, then lets the
  // store cut the log. May be repeated; of two processes that do it for one job at once, one must
  // wait (Retention's lock).
  base::Status archive(const store::JobRepository::FinishedJob& job);

 private:
  store::JobRepository& jobs_;
  const DataLayout& layout_;
};

}  // namespace dex::server
