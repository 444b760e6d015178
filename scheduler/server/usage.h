#pragma once

#include "dex/internal/v1/routes.pb.h"
#include "dex/v1/admin.pb.h"
#include "scheduler/store/usage_repository.h"
#include "services/auth/principal.h"
#include "services/base/status.h"

namespace dex::server {

// What tenants have used, as AdminService shows it and gateways report it. Waits for a round trip
// of the store. Thread-safe.
class Usage {
 public:
  explicit Usage(store::UsageRepository& usage) : usage_(usage) {}  // outlives this object

  // Needs the scope `admin`; another tenant's is the operator's alone (asked_tenant.h).
  base::Result<v1::GetUsageResponse> get(const auth::Principal& who,
                                         const v1::GetUsageRequest& request);
  // Tokens that a gateway has seen; a report that is sent twice counts once.
  base::Status report(const internal::v1::ReportUseRequest& request);

 private:
  store::UsageRepository& usage_;
};

}  // namespace dex::server
