#include "services/data/row_index.h"

#include <utility>

namespace dex::data {

namespace {
constexpr size_t kFirstSlots = 1024;
constexpr size_t kMostSlots = size_t{1} << 22;
}  // namespace

std::optional<int64_t> RowIndex::add(uint64_t hash, int64_t line) {
  hash += hash == 0;  // 0 marks a free slot
  const bool full = used_ * 4 >= hashes_.size() * 3;
  if (full && hashes_.size() < kMostSlots) grow();
  const size_t slot = slot_of(hash);
  if (hashes_[slot] == hash) return lines_[slot];
  if (used_ * 4 < hashes_.size() * 3) {
    hashes_[slot] = hash;
    lines_[slot] = static_cast<uint32_t>(line);
    ++used_;
  }
  return std::nullopt;
}

void RowIndex::grow() {
  const std::vector<uint64_t> hashes = std::exchange(hashes_, {});
  const std::vector<uint32_t> lines = std::exchange(lines_, {});
  hashes_.resize(hashes.empty() ? kFirstSlots : hashes.size() * 2);
  lines_.resize(hashes_.size());
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i] == 0) continue;
    const size_t slot = slot_of(hashes[i]);
    hashes_[slot] = hashes[i];
    lines_[slot] = lines[i];
  }
}

// Where the hash is, or the free slot where it would be. At most ¾ of the slots are used, so one is
// free.
size_t RowIndex::slot_of(uint64_t hash) const {
  const size_t mask = hashes_.size() - 1;
  size_t slot = hash & mask;
  while (hashes_[slot] != 0 && hashes_[slot] != hash) slot = (slot + 1) & mask;
  return slot;
}

}  // namespace dex::data
