#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "services/auth/key_ring.h"
#include "services/auth/principal.h"
#include "services/base/clock.h"
#include "services/base/status.h"

namespace dex::auth {

// Turns the credentials of one call into a Principal. Thread-safe, never blocks.
//
// Three kinds. Open (`--auth off`, api.md §1): on loopback the machine is one tenant, `default`,
// with every scope, and any bearer value is taken; check_listen_address() keeps such a server off
// every other address. With keys (`--auth on`): the bearer is an API key of the ring. And
// from_gateway(), for the processes behind the gateway, which has asked already.
class Authenticator {
 public:
  Authenticator();
  // Every caller is this tenant and has these scopes alone, as the owner of a key could: for tests.
  Authenticator(std::string tenant, std::initializer_list<Scope> scopes);
  Authenticator(const KeyRing& keys, const base::Clock& clock);  // both outlive this object

  // `authorization`: the value of that header, if the call carries one. With keys: UNAUTHENTICATED
  // `API_KEY_MISSING`, `API_KEY_INVALID` (no such key, revoked, or not in the form of one; the
  // answer does not tell which) or `API_KEY_EXPIRED`; UNAVAILABLE before the first snapshot. No
  // message shows the key.
  [[nodiscard]] base::Result<Principal> authenticate(
      std::optional<std::string_view> authorization) const;

  // Who a gateway says is calling: what it has put into the metadata (rpc/headers.h). `scopes` as
  // scope_words() writes them; unknown words are scopes of a newer gateway and count for nothing. A
  // call without a tenant comes from this machine itself and is the operator's; one without scopes
  // comes from a gateway of before there were keys, and has all.
  [[nodiscard]] static Principal from_gateway(std::optional<std::string> tenant,
                                              std::optional<std::string_view> scopes,
                                              std::optional<std::string> key);

 private:
  std::string tenant_;
  uint32_t scopes_;  // as Principal's
  const KeyRing* keys_ = nullptr;
  const base::Clock* clock_ = nullptr;
};

}  // namespace dex::auth
