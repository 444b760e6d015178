#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dex/internal/v1/worker.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/server/metrics.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/file_repository.h"
#include "scheduler/store/job_repository.h"
#include "scheduler/store/worker_repository.h"
#include "services/base/clock.h"
#include "services/base/random.h"
#include "services/base/status.h"

namespace dex::server {

namespace iv1 = dex::internal::v1;

// What workers say and are told (WorkerService, jobs.md §4), without gRPC. A worker is believed of
// its own attempts only: checkpoints and results must lie in the job's own attempt directories, and
// what the store refuses of one beat costs nobody a lease. Waits for a few round trips of the
// store. Thread-safe; every call may be repeated.
class Workers {
 public:
  struct Parts {  // all outlive this object
    store::Store& store;
    store::JobRepository& jobs;
    store::FileRepository& files;
    store::AdapterRepository& adapters;
    store::WorkerRepository& workers;
    const DataLayout& layout;
    Metrics& metrics;
    base::RandomSource& random;
    const ModelCatalog& models;
    const base::Clock& clock;
  };
  struct Options {
    int64_t beat_ms = 5000;
    std::function<void()> changed;  // a job or an adapter changed: somebody may wait for it
  };
  Workers(Parts parts, Options options) : parts_(parts), options_(std::move(options)) {}

  base::Result<iv1::RegisterResponse> enlist(const iv1::RegisterRequest& request);
  // One try, without waiting: the answer is `none` when there is no work.
  base::Result<iv1::ClaimResponse> claim(const iv1::ClaimRequest& request);
  base::Result<iv1::HeartbeatResponse> heartbeat(const iv1::HeartbeatRequest& request);
  base::Result<iv1::FinishResponse> finish(const iv1::FinishRequest& request);
  base::Result<iv1::DrainResponse> drain(const iv1::DrainRequest& request);

 private:
  // Ends a claimed job that can't run because an adapter or a file it names was deleted.
  base::Status give_up(const store::JobRepository::ClaimRequest& claim,
                       const store::ClaimedJob& job, const base::Status& why);
  // claimed_work.cc
  base::Result<iv1::ClaimedJob> granted(const store::ClaimedJob& job);
  static iv1::DesiredAdapter desired_adapter(const store::AdapterRecord& record);
  base::Result<iv1::InputFile> input(const std::string& tenant, const std::string& file);
  // What only a job of that kind has.
  base::Status add_training(const store::ClaimedJob& claimed, iv1::ClaimedJob& job);
  base::Status add_gate_files(const std::string& tenant, iv1::ClaimedJob& job);
  base::Status add_gate_adapters(const std::string& tenant, iv1::ClaimedJob& job);
  base::Status add_evaluation(const store::ClaimedJob& claimed, iv1::ClaimedJob& job);
  base::Status add_import(const store::ClaimedJob& claimed, iv1::ClaimedJob& job);
  base::Status add_export(const store::ClaimedJob& claimed, iv1::ClaimedJob& job);
  base::Status add_work(const store::ClaimedJob& claimed, iv1::ClaimedJob& job);
  base::Result<iv1::EvaluatedAdapter> adapter_files(const std::string& tenant,
                                                    const std::string& id);
  base::Result<iv1::AttemptVerdict> beat(const std::string& worker, const iv1::AttemptBeat& beat);
  // As the job's error shows it: with what would have fit, by the estimate.
  v1::OutOfMemory post_mortem(const iv1::FinishRequest& request);
  // The same without what the store refuses of it: whoever computes keeps its lease.
  base::Result<store::JobRepository::BeatReply> keep_lease(store::JobRepository::Beat beat,
                                                           const base::Status& refused);
  base::Status check_result(const iv1::FinishRequest& request) const;

  Parts parts_;
  Options options_;
};

}  // namespace dex::server
