#pragma once

#include <cstdint>
#include <string>

#include "services/base/status.h"

namespace dex::standalone {

// GET http://<address><path> on an IPv4 address with port ("127.0.0.1:9100"), by hand: this program
// links no HTTP library. OK for status 200; else UNAVAILABLE with what came instead. Blocks at most
// timeout_ms.
base::Status http_ok(const std::string& address, const std::string& path, int64_t timeout_ms);

}  // namespace dex::standalone
