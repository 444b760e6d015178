#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "services/base/status.h"

namespace dex::auth {

// A key as a gateway knows it: never the key itself.
struct KnownKey {
  std::string id;      // "key-…"
  std::string sha256;  // of the key, lower-case hex
  std::string tenant;
  uint32_t scopes = 0;    // as Principal's
  int64_t expire_ms = 0;  // Unix milliseconds; 0: never
};

// The keys of the last snapshot that the scheduler has sent. It stays in use without age limit, so
// that known keys work and unknown ones are refused while the control plane is away (jobs.md §13,
// P19); what was revoked meanwhile is learnt with the next one. Thread-safe; a look-up takes no
// lock that a replacement holds for long.
class KeyRing {
 public:
  void replace(const std::vector<KnownKey>& keys);

  // The key with that hash; nullopt: nobody has it. UNAVAILABLE `STORE_UNAVAILABLE` before the
  // first snapshot, when nothing is known of any key.
  [[nodiscard]] base::Result<std::optional<KnownKey>> find(std::string_view sha256) const;

 private:
  using Table = std::unordered_multimap<std::string, KnownKey>;  // by the hash's first characters
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_;  // guarded by mutex_; null: no snapshot yet
};

}  // namespace dex::auth
