#include "services/auth/authenticator.h"

#include <utility>

#include "services/auth/api_key.h"

namespace dex::auth {

namespace {

base::Status refused(const char* reason, const char* message) {
  return {base::Code::kUnauthenticated, reason, message};
}

}  // namespace

Authenticator::Authenticator() : tenant_(kOperatorTenant), scopes_(kAllScopes) {}

Authenticator::Authenticator(std::string tenant, std::initializer_list<Scope> scopes)
    : tenant_(std::move(tenant)), scopes_(0) {
  for (const Scope scope : scopes) scopes_ |= bit(scope);
}

Authenticator::Authenticator(const KeyRing& keys, const base::Clock& clock)
    : scopes_(0), keys_(&keys), clock_(&clock) {}

base::Result<Principal> Authenticator::authenticate(
    std::optional<std::string_view> authorization) const {
  if (keys_ == nullptr) return Principal(tenant_, scopes_, "");
  if (!authorization || authorization->empty()) {
    return refused("API_KEY_MISSING",
                   "this server wants an API key: send the header 'authorization: Bearer dex_…'");
  }
  const auto token = bearer_token(*authorization);
  if (!token || !is_api_key(*token)) {
    return refused("API_KEY_INVALID",
                   "the header 'authorization' must be 'Bearer ' and an API key, dex_ and 49 "
                   "letters and digits; this one is not whole or has a typing error");
  }
  DEX_ASSIGN_OR_RETURN(const auto key, keys_->find(api_key_sha256(*token)));
  if (!key) {
    return refused("API_KEY_INVALID",
                   "no such API key: it was revoked, or another platform has made it");
  }
  if (key->expire_ms != 0 && clock_->now_ms() >= key->expire_ms) {
    return refused("API_KEY_EXPIRED", "this API key has expired; ask for a new one");
  }
  return Principal(key->tenant, key->scopes, key->id);
}

Principal Authenticator::from_gateway(std::optional<std::string> tenant,
                                      std::optional<std::string_view> scopes,
                                      std::optional<std::string> key) {
  if (!tenant) return {std::string(kOperatorTenant), kAllScopes, ""};
  // A gateway from before there were keys names no scopes: it serves its own machine alone.
  if (!scopes) return {std::move(*tenant), kAllScopes, ""};
  return {std::move(*tenant), scopes_in(*scopes), std::move(key).value_or("")};
}

}  // namespace dex::auth
