#pragma once

#include <google/protobuf/timestamp.pb.h>

#include <optional>

#include "scheduler/store/job_repository.h"
#include "scheduler/store/operator_repository.h"
#include "services/base/clock.h"
#include "services/base/status.h"

namespace dex::server {

// When waiting jobs should start, from what their pool runs now (core/start_estimate.h).
// Thread-safe; a question takes a round trip of the store for each job that runs in the pool.
class StartEstimates {
 public:
  struct Parts {  // all outlive this object
    store::OperatorRepository& operators;
    store::JobRepository& jobs;
    const base::Clock& clock;
  };
  explicit StartEstimates(Parts parts) : parts_(parts) {}

  // Of a job that is READY and waits for capacity, on `base_model`. Nothing where it can't be told:
  // no worker of its pool is up with the model, more than 100 workers are, or the job is not among
  // the first 100 of its pool.
  base::Result<std::optional<google::protobuf::Timestamp>> of(const store::JobRecord& job,
                                                              const std::string& base_model);

 private:
  Parts parts_;
};

}  // namespace dex::server
