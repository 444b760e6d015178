#pragma once

#include <string_view>

#include "services/base/status.h"

namespace dex::auth {

// True for 127.0.0.0/8, ::1, localhost and Unix sockets ("unix:/run/x.sock"). `address` is
// "host:port", "[v6]:port" or "unix:path". Names other than localhost count as not loopback: what
// they resolve to can change.
bool is_loopback(std::string_view address);

// Refuses every address that others can reach, because calls are not authenticated there.
// INVALID_ARGUMENT `INVALID_FIELD`; `flag` names the option in the message ("--listen").
base::Status check_listen_address(std::string_view flag, std::string_view address);

}  // namespace dex::auth
