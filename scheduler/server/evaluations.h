#pragma once

#include <functional>
#include <map>
#include <string>

#include "dex/v1/evaluation.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/server/metrics.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/server/request_key.h"
#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/file_repository.h"
#include "scheduler/store/job_repository.h"
#include "services/auth/principal.h"
#include "services/base/ids.h"
#include "services/base/status.h"

namespace dex::server {

// What a user does with evaluations (EvaluationService), without gRPC. An evaluation is a job of
// kind `evaluation` without an adapter of its own (worker/evaluate/README.md): queue, leases,
// quotas, events and cancel are those of every job. Waits for a few round trips of the store.
// Thread-safe.
class Evaluations {
 public:
  struct Parts {  // all outlive this object
    store::Store& store;
    store::JobRepository& jobs;
    store::FileRepository& files;
    store::AdapterRepository& adapters;
    const ModelCatalog& models;
    const DataLayout& layout;
    Metrics& metrics;
    base::UlidGenerator& ids;
  };
  struct Options {
    std::string pool = "cpu";
    // Called after an evaluation was made or changed: somebody may wait for it.
    std::function<void()> changed;
    // As FineTuningJobs::Options.
    std::function<base::Status()> durable;
  };
  Evaluations(Parts parts, Options options) : parts_(parts), options_(std::move(options)) {}

  // Checks everything but the content of the files and queues the evaluation. Nothing is stored
  // when anything is wrong, nor with validate_only. INVALID_ARGUMENT with every bad field;
  // MODEL_NOT_FOUND; ADAPTER_MISMATCH; CONFLICTING_FIELDS for heads of what method diff made;
  // FILE_NOT_READY, FILE_INVALID; QUOTA_EXCEEDED.
  base::Result<Answer<v1::Evaluation>> create(const auth::Principal& who,
                                              const v1::CreateEvaluationRequest& request);
  // With results and report once it has SUCCEEDED.
  base::Result<v1::Evaluation> get(const auth::Principal& who,
                                   const v1::GetEvaluationRequest& request);
  // A filtered page may be short, also empty, and still have a next one: at most 1000 jobs of any
  // kind are looked at in one call.
  base::Result<v1::ListEvaluationsResponse> list(const auth::Principal& who,
                                                 const v1::ListEvaluationsRequest& request);
  // The tar of what a SUCCEEDED one has published, in pieces; JOB_STATE_CONFLICT of another one.
  base::Status download(const auth::Principal& who, const v1::DownloadEvaluationRequest& request,
                        const std::function<bool(std::string)>& sink);
  // evaluation_samples.h.
  base::Result<v1::ListEvaluationSamplesResponse> samples(
      const auth::Principal& who, const v1::ListEvaluationSamplesRequest& request);
  // evaluation_comparison.h.
  base::Result<v1::CompareEvaluationsResponse> compare(
      const auth::Principal& who, const v1::CompareEvaluationsRequest& request);
  base::Result<Answer<v1::Evaluation>> cancel(const auth::Principal& who,
                                              const v1::CancelEvaluationRequest& request);
  // JOB_STATE_CONFLICT before it has ended. Also waits for the disk.
  base::Result<Answer<v1::DeleteEvaluationResponse>> remove(
      const auth::Principal& who, const v1::DeleteEvaluationRequest& request);

 private:
  // Fills in each subject's base and answers it; all subjects have the same one.
  base::Result<v1::Model> resolve_subjects(const std::string& tenant, v1::EvaluationSpec& spec);
  base::Result<store::NewJob> new_job(const std::string& tenant, v1::EvaluationSpec spec);

  Parts parts_;
  Options options_;
};

}  // namespace dex::server
