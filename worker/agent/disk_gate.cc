#include "worker/agent/disk_gate.h"

#include <algorithm>

#include "services/base/files.h"

namespace dex::agent {

DiskGate::DiskGate(std::filesystem::path directory, int64_t min_free_bytes)
    : directory_(std::move(directory)),
      min_free_bytes_(min_free_bytes),
      wanted_bytes_(min_free_bytes) {}

bool DiskGate::open() const {
  const auto free = base::free_bytes(directory_);
  return free.ok() && *free >= wanted_bytes_;
}

void DiskGate::found_full() {
  const auto free = base::free_bytes(directory_);
  // A tenth more than was not enough, or the writer would fail at the same place again.
  const int64_t now = free.ok() ? *free : 0;
  wanted_bytes_ = std::max(min_free_bytes_, now + now / 10 + (16 << 20));
}

}  // namespace dex::agent
