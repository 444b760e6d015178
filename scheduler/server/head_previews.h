#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dex/v1/finetuning.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/server/metrics.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/store/file_repository.h"
#include "scheduler/store/job_repository.h"
#include "services/auth/principal.h"
#include "services/base/ids.h"
#include "services/base/status.h"

namespace dex::server {

// PreviewHeadSelection without gRPC. A preview is a job of kind `head_selection`: the fine-tuning
// job that the request describes, resolved like one, which the trainer ends once its heads are
// chosen (TrainerStart.heads_only). So its numbers are a job's by construction; an evaluator knows
// neither a job's rows nor its rule. Rows that came as `texts` lie in its folder
// (DataLayout::texts), which goes after a day (leftovers.h). Nobody sees it as a job: whoever asked
// waits for the report. Waits for a few round trips of the store. Thread-safe.
class HeadPreviews {
 public:
  struct Parts {  // all outlive this object
    store::JobRepository& jobs;
    store::FileRepository& files;
    const ModelCatalog& models;
    const DataLayout& layout;
    Metrics& metrics;
    base::UlidGenerator& ids;
  };
  struct Options {
    std::string pool = "cpu";
    // Called after a preview was queued or cancelled: somebody may wait for it.
    std::function<void()> changed;
  };
  HeadPreviews(Parts parts, Options options) : parts_(parts), options_(std::move(options)) {}

  // Checks the request and queues it; the id to look with. INVALID_ARGUMENT with every bad field,
  // named as in the request; MODEL_NOT_FOUND; RESOURCE_NOT_FOUND, FILE_NOT_READY, FILE_INVALID;
  // QUOTA_EXCEEDED; STORAGE_FULL.
  base::Result<std::string> begin(const auth::Principal& who,
                                  const v1::PreviewHeadSelectionRequest& request);
  // The report once there is one; nothing while it is waited for. STORE_UNAVAILABLE is no end: look
  // again. Ends: FILE_INVALID, INVALID_FIELD, DOES_NOT_FIT, STORAGE_FULL, DEADLINE, INTERNAL,
  // ARTIFACT_CORRUPT.
  base::Result<std::optional<v1::HeadSelectionReport>> look(const auth::Principal& who,
                                                            const std::string& id,
                                                            bool with_picture);
  // Nobody waits any more. False: the store is away, try again.
  bool abandon(const auth::Principal& who, const std::string& id);

 private:
  base::Result<store::NewJob> new_job(const std::string& tenant,
                                      const v1::PreviewHeadSelectionRequest& request);
  base::Status write_texts(const std::string& tenant, const std::string& id,
                           const v1::PreviewHeadSelectionRequest& request) const;

  Parts parts_;
  Options options_;
};

}  // namespace dex::server
