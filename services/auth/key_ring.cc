#include "services/auth/key_ring.h"

#include <utility>

#include "services/auth/api_key.h"

namespace dex::auth {

namespace {

// The table is asked by the start of the hash, the rest is compared in constant time: how long a
// look-up takes tells nothing about more than these 32 bits of a stored hash.
constexpr size_t kBucket = 8;

std::string bucket(std::string_view sha256) {
  return std::string(sha256.substr(0, kBucket));
}

}  // namespace

void KeyRing::replace(const std::vector<KnownKey>& keys) {
  auto table = std::make_shared<Table>();
  table->reserve(keys.size());
  for (const KnownKey& key : keys) table->emplace(bucket(key.sha256), key);
  std::shared_ptr<const Table> next = std::move(table);
  const std::lock_guard lock(mutex_);
  table_.swap(next);
}

base::Result<std::optional<KnownKey>> KeyRing::find(std::string_view sha256) const {
  std::shared_ptr<const Table> table;
  {
    const std::lock_guard lock(mutex_);
    table = table_;
  }
  if (!table) {
    return base::unavailable("STORE_UNAVAILABLE",
                             "the scheduler has not answered since this gateway started, so no API "
                             "key can be checked yet; try again in a moment");
  }
  const auto [first, last] = table->equal_range(bucket(sha256));
  for (auto it = first; it != last; ++it) {
    if (equal_in_constant_time(it->second.sha256, sha256)) return std::optional(it->second);
  }
  return std::optional<KnownKey>();
}

}  // namespace dex::auth
