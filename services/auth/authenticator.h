#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "services/auth/principal.h"
#include "services/base/status.h"

namespace dex::auth {

// Turns the credentials of one call into a Principal. Thread-safe, never blocks.
//
// This build authenticates nobody: on loopback the machine is one tenant, `default`, with every
// scope, and any bearer value is taken (api.md §1, `--auth off`). check_listen_address() keeps such
// a server off every other address.
class Authenticator {
 public:
  Authenticator();
  // Every caller is this tenant and has these scopes alone, as the owner of a key could: for tests.
  Authenticator(std::string tenant, std::initializer_list<Scope> scopes);

  // `authorization`: the value of that header, if the call carries one.
  [[nodiscard]] base::Result<Principal> authenticate(
      std::optional<std::string_view> authorization) const;

 private:
  std::string tenant_;
  uint32_t scopes_;  // as Principal's
};

}  // namespace dex::auth
