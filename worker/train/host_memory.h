#pragma once

#include <cstdint>

namespace dex::train {

// The process's peak resident memory in bytes (VmHWM), 0 where /proc does not say.
int64_t peak_host_memory();

}  // namespace dex::train
