#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "services/base/status.h"

namespace dex::auth {

// What a caller may do (api.md §1, authentication).
enum class Scope : uint32_t {
  kFilesRead,
  kFilesWrite,
  kJobsRead,
  kJobsWrite,
  kAdaptersRead,
  kAdaptersWrite,
  kAdaptersServe,
  kInfer,
  kEvalRead,
  kEvalWrite,
  kMetricsRead,
  kAdmin,
};
std::string_view name(Scope scope);  // "jobs:write"

// Who is calling. Only Authenticator makes one, so a function that takes a Principal cannot be
// reached by a call that nobody authenticated. A plain value; copies are cheap.
class Principal {
 public:
  // The tenant whose objects this caller sees; never taken from a request.
  [[nodiscard]] const std::string& tenant() const { return tenant_; }
  [[nodiscard]] bool has(Scope scope) const;

 private:
  friend class Authenticator;
  Principal(std::string tenant, uint32_t scopes) : tenant_(std::move(tenant)), scopes_(scopes) {}

  std::string tenant_;
  uint32_t scopes_;  // bit n = Scope n
};

// The tenant of this machine. Its admins are the platform's operators; those of other tenants
// administer theirs.
inline constexpr std::string_view kOperatorTenant = "default";
bool is_operator(const Principal& principal);
// PERMISSION_DENIED `SCOPE_MISSING`, or OK.
base::Status require_operator(const Principal& principal);

// PERMISSION_DENIED `SCOPE_MISSING` naming the scope, or OK.
base::Status require(const Principal& principal, Scope scope);

}  // namespace dex::auth
