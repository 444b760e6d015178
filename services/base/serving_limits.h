#pragma once

#include <cstdint>

namespace dex::base {

// Memory that an engine has for adapters unless it was started with another size; what the
// scheduler says of how many are served at once follows from it.
inline constexpr int64_t kAdapterBytes = int64_t{2} << 30;

}  // namespace dex::base
