#include "services/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace dex::base {

void SystemRandom::fill(std::span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      // Without the kernel's generator no id is unique and no key is secret: there is no way to go
      // on.
      std::perror("getrandom");
      std::abort();
    }
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

void SeededRandom::fill(std::span<uint8_t> bytes) {
  const std::lock_guard lock(mutex_);
  for (auto& byte : bytes) byte = static_cast<uint8_t>(engine_() >> 56);
}

double uniform(RandomSource& random) {
  uint64_t bits = 0;
  random.fill({reinterpret_cast<uint8_t*>(&bits), sizeof bits});
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace dex::base
