#pragma once

#include <string>

#include "dex/v1/admin.pb.h"
#include "scheduler/store/operator_repository.h"

// Between what the store keeps and what an operator sees. Pure. `tenant`: whose ids may be shown.
namespace dex::server {

v1::Quota quota_view(const std::string& tenant, const store::OperatorRepository::Quota& quota);
v1::Worker worker_view(const std::string& tenant,
                       const store::OperatorRepository::SeenWorker& worker);
v1::Queue::Pool pool_view(const std::string& tenant, const std::string& name,
                          const store::OperatorRepository::PoolQueue& queue);

}  // namespace dex::server
