#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dex/v1/finetuning.pb.h"
#include "scheduler/server/fine_tuning_jobs.h"
#include "scheduler/server/metrics.h"
#include "scheduler/store/job_repository.h"
#include "services/auth/principal.h"
#include "services/base/ids.h"
#include "services/base/status.h"

namespace dex::server {

// EstimateFineTuningJob with METHOD_PROBE, without gRPC. A probe is a job of kind `probe`: the
// fine-tuning job that the request describes, resolved like one, which the trainer ends after one
// update on its longest rows (TrainerStart.probe_only). Nobody sees it as a job: whoever asked
// waits for the estimate. Its folder goes after a day (leftovers.h). Waits for a few round trips of
// the store. Thread-safe.
class MemoryProbes {
 public:
  struct Parts {  // all outlive this object
    FineTuningJobs& planner;
    store::JobRepository& jobs;
    Metrics& metrics;
    base::UlidGenerator& ids;
  };
  struct Options {
    // Called after a probe was queued or cancelled: somebody may wait for it.
    std::function<void()> changed;
  };
  MemoryProbes(Parts parts, Options options) : parts_(parts), options_(std::move(options)) {}

  struct Begun {
    std::string id;  // empty: it can't fit by formula, and plan.estimate is the answer
    FineTuningJobs::Plan plan;
  };
  // Checks the request as create does, and queues the probe. Errors of create but DOES_NOT_FIT.
  base::Result<Begun> begin(const auth::Principal& who,
                            const v1::EstimateFineTuningJobRequest& request);
  // The estimate once there is one, also where memory did not suffice (fits = false); nothing while
  // it is waited for. STORE_UNAVAILABLE is no end: look again. Ends: FILE_INVALID, INVALID_FIELD,
  // STORAGE_FULL, DEADLINE, INTERNAL.
  base::Result<std::optional<v1::Estimate>> look(const auth::Principal& who, const Begun& begun);
  // Nobody waits any more. False: the store is away, try again.
  bool abandon(const auth::Principal& who, const Begun& begun);

 private:
  base::Result<store::NewJob> new_job(const std::string& tenant, const FineTuningJobs::Plan& plan);

  Parts parts_;
  Options options_;
};

}  // namespace dex::server
