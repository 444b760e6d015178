#pragma once

#include <cstdlib>

namespace dex::support {

// Tests that can go on for hours have a short form, which deploy/check runs, and a long one for
// nights: DEX_LONG set to anything but 0.
inline bool long_form() {
  const char* value = std::getenv("DEX_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

// What a measured time is held against is the promise times this. The long form, which has the
// machine to itself, holds the promise as it stands. The short one gives three times as much: it
// runs beside builds and other tests, and what breaks a promise for good, like a wait for a
// reconnect that grows to minutes, is slower than that.
inline int slack() {
  return long_form() ? 1 : 3;
}

}  // namespace dex::support
