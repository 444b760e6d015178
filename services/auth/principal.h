#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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
std::optional<Scope> find_scope(std::string_view name);

// Sets of scopes as one number, bit n = Scope n.
constexpr uint32_t bit(Scope scope) {
  return 1U << static_cast<uint32_t>(scope);
}
inline constexpr uint32_t kAllScopes = (bit(Scope::kAdmin) << 1) - 1;
// As words with a space between, "jobs:read infer", in the order of the enum; and back, where
// unknown words are passed over.
std::string scope_words(uint32_t scopes);
uint32_t scopes_in(std::string_view words);

// Who is calling. Only Authenticator makes one, so a function that takes a Principal cannot be
// reached by a call that nobody authenticated. A plain value; copies are cheap.
class Principal {
 public:
  // The tenant whose objects this caller sees; never taken from a request.
  [[nodiscard]] const std::string& tenant() const { return tenant_; }
  [[nodiscard]] bool has(Scope scope) const;
  [[nodiscard]] uint32_t scopes() const { return scopes_; }
  // Id of the API key that was shown, "key-…"; empty: none was asked for.
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  friend class Authenticator;
  Principal(std::string tenant, uint32_t scopes, std::string key)
      : tenant_(std::move(tenant)), scopes_(scopes), key_(std::move(key)) {}

  std::string tenant_;
  uint32_t scopes_;
  std::string key_;
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
