#include "services/auth/authenticator.h"

#include <utility>

namespace dex::auth {

namespace {
constexpr uint32_t kAllScopes = (1U << (static_cast<uint32_t>(Scope::kAdmin) + 1)) - 1;
}  // namespace

Authenticator::Authenticator() : tenant_(kOperatorTenant), scopes_(kAllScopes) {}

Authenticator::Authenticator(std::string tenant, std::initializer_list<Scope> scopes)
    : tenant_(std::move(tenant)), scopes_(0) {
  for (const Scope scope : scopes) scopes_ |= 1U << static_cast<uint32_t>(scope);
}

base::Result<Principal> Authenticator::authenticate(
    std::optional<std::string_view> /*authorization*/) const {
  return Principal(tenant_, scopes_);
}

}  // namespace dex::auth
