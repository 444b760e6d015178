#pragma once

#include <cstdlib>

namespace dex::support {

// Tests that can go on for hours have a short form, which deploy/check runs, and a long one for
// nights: DEX_LONG set to anything but 0.
inline bool long_form() {
  const char* value = std::getenv("DEX_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

}  // namespace dex::support
