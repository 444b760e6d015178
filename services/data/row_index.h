#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace dex::data {

// Remembers which content was on which line. A flat table of 12 bytes a slot that doubles as it
// fills, up to 3 million rows (48 MiB); later rows are compared with those but no longer
// remembered. Not thread-safe.
class RowIndex {
 public:
  // The line on which the same hash was added first; nullopt if it is new (and now remembered).
  std::optional<int64_t> add(uint64_t content_hash, int64_t line);

 private:
  void grow();
  size_t slot_of(uint64_t hash) const;

  std::vector<uint64_t> hashes_;  // a power of two; 0 = free
  std::vector<uint32_t> lines_;
  size_t used_ = 0;
};

}  // namespace dex::data
