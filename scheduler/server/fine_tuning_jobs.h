#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dex/v1/adapters.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "scheduler/core/estimate.h"
#include "scheduler/core/resolve.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/server/job_events.h"
#include "scheduler/server/metrics.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/server/request_key.h"
#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/file_repository.h"
#include "scheduler/store/job_repository.h"
#include "scheduler/store/worker_repository.h"
#include "services/auth/principal.h"
#include "services/base/ids.h"
#include "services/base/random.h"
#include "services/base/status.h"

namespace dex::server {

// What a user does with jobs (FineTuningService), without gRPC. Waits for a few round trips of the
// store. Thread-safe. Errors as in api.md §1 and §2.
class FineTuningJobs {
 public:
  struct Parts {  // all outlive this object
    store::Store& store;
    store::JobRepository& jobs;
    store::FileRepository& files;
    store::AdapterRepository& adapters;
    store::WorkerRepository& workers;
    JobEvents& events;
    const ModelCatalog& models;
    const DataLayout& layout;
    Metrics& metrics;
    base::UlidGenerator& ids;
    base::RandomSource& random;
  };
  struct Options {
    std::string default_pool = "cpu";
    core::DeviceFacts device;
    // Called after a job was made or changed: somebody may wait for it.
    std::function<void()> changed;
    // Whether the store keeps what it acknowledges (Sweeper::health); asked before a job is made.
    std::function<base::Status()> durable;
    // When a job that waits for capacity should start (start_estimates.h); empty: nobody says.
    std::function<base::Result<std::optional<google::protobuf::Timestamp>>(
        const store::JobRecord& job, const std::string& base_model)>
        estimated_start;
  };
  FineTuningJobs(Parts parts, Options options) : parts_(parts), options_(std::move(options)) {}

  // Checks everything that needs no worker, resolves the preset, queues the job. Nothing is stored
  // when anything is wrong, nor with validate_only, nor while the store would not keep it:
  // STORE_UNAVAILABLE.
  base::Result<Answer<v1::FineTuningJob>> create(const auth::Principal& who,
                                                 const v1::CreateFineTuningJobRequest& request);
  // With its head selection also ARTIFACT_CORRUPT, and then waits for the disk.
  base::Result<v1::FineTuningJob> get(const auth::Principal& who,
                                      const v1::GetFineTuningJobRequest& request);
  // A filtered page may be short, also empty, and still have a next one: at most 1000 jobs are
  // looked at in one call.
  base::Result<v1::ListFineTuningJobsResponse> list(const auth::Principal& who,
                                                    const v1::ListFineTuningJobsRequest& request);
  base::Result<Answer<v1::FineTuningJob>> cancel(const auth::Principal& who,
                                                 const v1::CancelFineTuningJobRequest& request);
  // By formula; METHOD_PROBE is MemoryProbes'.
  base::Result<v1::Estimate> estimate(const auth::Principal& who,
                                      const v1::EstimateFineTuningJobRequest& request);
  base::Result<v1::ListFineTuningEventsResponse> events(
      const auth::Principal& who, const v1::ListFineTuningEventsRequest& request);
  // Reads all of the job's events, which may take a moment of the disk. INVALID_CURSOR.
  base::Result<v1::ListFineTuningCheckpointsResponse> checkpoints(
      const auth::Principal& who, const v1::ListFineTuningCheckpointsRequest& request);

  // What a job would be, and the job: what create, estimate and probes (memory_probes.h) share.
  struct Plan {
    core::Resolved resolved;
    v1::Estimate estimate;  // by formula
    v1::Model model;        // the base
    core::DeviceFacts device;
  };
  base::Result<Plan> plan(const std::string& tenant, const v1::FineTuningJobSpec& spec);
  base::Result<store::NewJob> new_job(const std::string& tenant, const Plan& plan);
  // All that create checks of a spec before it is stored, and the job that it would store.
  base::Result<store::NewJob> checked_job(const auth::Principal& who,
                                          const v1::FineTuningJobSpec& spec);

 private:
  // The adapter that spec.model names, made on `model`; ADAPTER_MISMATCH if it was made on other
  // weights.
  base::Result<core::StartAdapter> start_adapter(const std::string& tenant, const std::string& id,
                                                 const v1::Model& model);
  // The effective spec of the job that made it, or would have made one that was imported.
  base::Result<v1::FineTuningJobSpec> maker_of(const std::string& tenant,
                                               const store::AdapterRecord& record,
                                               const v1::Adapter& adapter);
  // The spec as the store has it of a job that made an adapter, also after the job was deleted.
  base::Result<std::string> stored_spec(const std::string& tenant, const std::string& job);
  // What the tasks of its gates read; files that are not named are for core::resolve to refuse.
  base::Result<core::TaskFiles> gate_files(const std::string& tenant,
                                           const v1::FineTuningJobSpec& spec);
  // The other adapters that gates of an effective spec are against: they are there, made on these
  // weights of `model`, and can be measured; a control has been trained as the job will be. Named
  // by gates[i].adapter: RESOURCE_NOT_FOUND, ADAPTER_MISMATCH, CONFLICTING_FIELDS.
  base::Status check_gate_adapters(const std::string& tenant, const v1::FineTuningJobSpec& spec,
                                   const v1::Model& model);
  base::Status check_control(const std::string& tenant, const std::string& field,
                             const store::AdapterRecord& record, const v1::FineTuningJobSpec& spec);
  // The machine that a job may count on: the largest of those that are up.
  core::DeviceFacts device();
  base::Result<Answer<v1::FineTuningJob>> submit(const std::string& tenant,
                                                 store::JobRepository::Submission submission);

  Parts parts_;
  Options options_;
};

}  // namespace dex::server
