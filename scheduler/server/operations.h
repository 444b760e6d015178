#pragma once

#include <functional>

#include "dex/v1/admin.pb.h"
#include "scheduler/server/request_key.h"
#include "scheduler/store/operator_repository.h"
#include "services/auth/principal.h"
#include "services/base/ids.h"
#include "services/base/status.h"

namespace dex::server {

// What operators see and change of tenants, workers and queues (AdminService), without gRPC. Waits
// for a few round trips of the store. Thread-safe. Every call needs the scope `admin`; nobody is
// shown the ids of another tenant's objects, and another tenant's quota is the operator's alone
// (auth/principal.h): to other admins such a tenant is not there.
class Operations {
 public:
  struct Parts {  // all outlive this object
    store::OperatorRepository& operators;
    base::UlidGenerator& ids;
  };
  // `changed` is called after each change: jobs may have become free to start.
  Operations(const Parts& parts, std::function<void()> changed)
      : parts_(parts), changed_(std::move(changed)) {}

  base::Result<v1::Quota> quota(const auth::Principal& who, const v1::GetQuotaRequest& request);
  // VALUE_OUT_OF_RANGE names every bad value; MISSING_FIELD when nothing is set; ETAG_MISMATCH.
  base::Result<Answer<v1::Quota>> set_quota(const auth::Principal& who,
                                            const v1::SetQuotaRequest& request);

  base::Result<v1::ListWorkersResponse> list_workers(const auth::Principal& who,
                                                     const v1::ListWorkersRequest& request);
  base::Result<Answer<v1::Worker>> update_worker(const auth::Principal& who,
                                                 const v1::UpdateWorkerRequest& request);

  // RESOURCE_NOT_FOUND for a pool that no worker and no job ever named.
  base::Result<v1::Queue> queue(const auth::Principal& who, const v1::GetQueueRequest& request);

 private:
  const Parts parts_;
  const std::function<void()> changed_;
};

}  // namespace dex::server
