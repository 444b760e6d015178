#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dex/v1/admin.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/server/request_key.h"
#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/job_repository.h"
#include "services/auth/principal.h"
#include "services/base/ids.h"
#include "services/base/status.h"

namespace dex::server {

// What a user or an operator does to a fine-tuning job that exists, without gRPC. Waits for a few
// round trips of the store. Thread-safe. Errors as in api.md §1 and §2; JOB_STATE_CONFLICT names
// the state.
class JobChanges {
 public:
  struct Parts {  // all outlive this object
    store::Store& store;
    store::JobRepository& jobs;
    store::AdapterRepository& adapters;
    const DataLayout& layout;
    base::UlidGenerator& ids;
  };
  // `changed` is called after each change: somebody may wait for it.
  JobChanges(const Parts& parts, std::function<void()> changed)
      : parts_(parts), changed_(std::move(changed)) {}

  using JobAnswer = base::Result<Answer<v1::FineTuningJob>>;
  JobAnswer pause(const auth::Principal& who, const v1::PauseFineTuningJobRequest& request);
  JobAnswer resume(const auth::Principal& who, const v1::ResumeFineTuningJobRequest& request);
  JobAnswer update(const auth::Principal& who, const v1::UpdateFineTuningJobRequest& request);
  JobAnswer redrive(const auth::Principal& who, const v1::RedriveFineTuningJobRequest& request);
  // Also waits for the disk. A call that was interrupted is finished by its repeat, or by
  // Retention.
  base::Result<Answer<v1::DeleteFineTuningJobResponse>> remove(
      const auth::Principal& who, const v1::DeleteFineTuningJobRequest& request);

  // Asks for a checkpoint; checkpoint() then tells whether it is there.
  base::Result<store::JobRepository::Asked> ask_checkpoint(
      const auth::Principal& who, const v1::CreateCheckpointRequest& request);
  // Nothing: not yet. JOB_STATE_CONFLICT: the job has ended without it.
  base::Result<std::optional<v1::Checkpoint>> checkpoint(const auth::Principal& who,
                                                         const std::string& job,
                                                         const std::string& checkpoint_id);

 private:
  JobAnswer answer(const auth::Principal& who, const std::string& id,
                   const base::Result<store::JobRepository::Changed>& changed);

  const Parts parts_;
  const std::function<void()> changed_;
};

}  // namespace dex::server
