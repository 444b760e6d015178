#pragma once

#include <string>

#include "services/auth/principal.h"
#include "services/base/status.h"

namespace dex::server {

// The tenant that an admin's request means: the caller's own when it names none. Another one is the
// operator's to name; to other admins it is not there (RESOURCE_NOT_FOUND). SCOPE_MISSING without
// the scope `admin`.
base::Result<std::string> asked_tenant(const auth::Principal& who, const std::string& asked);

}  // namespace dex::server
