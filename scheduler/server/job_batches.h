#pragma once

#include "dex/v1/finetuning.pb.h"
#include "scheduler/server/fine_tuning_jobs.h"

namespace dex::server {

// Jobs that are made together, all or none (BatchCreateFineTuningJobs), without gRPC. Thread-safe;
// blocks as many times as FineTuningJobs::create as there are jobs.
class JobBatches {
 public:
  struct Parts {  // all outlive this object
    FineTuningJobs& logic;
    store::Store& store;
    store::JobRepository& jobs;
    Metrics& metrics;
    base::UlidGenerator& ids;
  };
  struct Options {  // as FineTuningJobs::Options
    std::function<void()> changed;
    std::function<base::Status()> durable;
  };
  JobBatches(Parts parts, Options options) : parts_(parts), options_(std::move(options)) {}

  // Checks each as create does, gives all the metadata sweep_id, and queues them with one script.
  // What is wrong with one is said with its place in the batch; then none is stored, as with
  // validate_only. QUOTA_EXCEEDED where not all fit into the tenant's queue.
  base::Result<Answer<v1::BatchCreateFineTuningJobsResponse>> create(
      const auth::Principal& who, const v1::BatchCreateFineTuningJobsRequest& request);

 private:
  base::Result<store::JobRepository::Submission> checked(
      const auth::Principal& who, const v1::BatchCreateFineTuningJobsRequest& request,
      const std::string& sweep_id);
  // As they are now, in the order that they were asked for.
  base::Result<v1::BatchCreateFineTuningJobsResponse> read(const std::string& tenant,
                                                           const std::vector<std::string>& ids);

  Parts parts_;
  Options options_;
};

}  // namespace dex::server
