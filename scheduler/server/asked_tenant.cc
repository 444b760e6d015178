#include "scheduler/server/asked_tenant.h"

#include "scheduler/store/alphabet.h"

namespace dex::server {

base::Result<std::string> asked_tenant(const auth::Principal& who, const std::string& asked) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdmin));
  if (asked.empty() || asked == who.tenant()) return who.tenant();
  if (!auth::is_operator(who)) {
    return base::not_found("RESOURCE_NOT_FOUND",
                           "There is no tenant '" + store::shown(asked) + "'.")
        .with_metadata("resource_type", "tenant")
        .with_metadata("resource_name", store::shown(asked));
  }
  DEX_RETURN_IF_ERROR(store::check_tenant(asked));
  return asked;
}

}  // namespace dex::server
