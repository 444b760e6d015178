#include "worker/train/prefix_entries.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "services/base/sha256.h"

namespace dex::train {

std::string prefix_entry_name(const PrefixKey& key, std::span<const int64_t> ids) {
  base::Sha256 hash;
  // Each part ends in a byte that none of them has, so no two keys read alike.
  for (const std::string& part :
       {std::string("prefix 1"), key.base_weights_sha256, key.config_sha256,
        std::to_string(key.layers), key.dtype, key.computed_by}) {
    hash.update(part);
    hash.update(std::string_view("\0", 1));
  }
  hash.update(std::string_view(reinterpret_cast<const char*>(ids.data()), ids.size_bytes()));
  return hash.hex();
}

std::vector<PrefixEntry> prefix_entries_to_drop(std::vector<PrefixEntry> entries, int64_t max_bytes,
                                                int64_t wanted, int64_t keep_since_ms) {
  int64_t total = wanted;
  for (const PrefixEntry& entry : entries) total += entry.bytes;
  std::erase_if(entries, [&](const PrefixEntry& entry) { return entry.used_ms >= keep_since_ms; });
  std::sort(entries.begin(), entries.end(), [](const PrefixEntry& a, const PrefixEntry& b) {
    return std::tie(a.used_ms, a.name) < std::tie(b.used_ms, b.name);
  });
  size_t dropped = 0;
  for (; dropped < entries.size() && total > max_bytes; ++dropped) total -= entries[dropped].bytes;
  entries.resize(dropped);
  return entries;
}

}  // namespace dex::train
