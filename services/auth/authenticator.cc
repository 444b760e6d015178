#include "services/auth/authenticator.h"

namespace dex::auth {

namespace {
constexpr uint32_t kAllScopes = (1U << (static_cast<uint32_t>(Scope::kAdmin) + 1)) - 1;
}  // namespace

base::Result<Principal> Authenticator::authenticate(
    std::optional<std::string_view> /*authorization*/) const {
  return Principal("default", kAllScopes);
}

}  // namespace dex::auth
