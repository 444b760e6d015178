#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace dex::agent {

// Whether the disk has room for another attempt. After an attempt found it full, there must be
// clearly more than there was then. Thread-safe; asks the file system.
class DiskGate {
 public:
  DiskGate(std::filesystem::path directory, int64_t min_free_bytes);
  [[nodiscard]] bool open() const;
  void found_full();

 private:
  const std::filesystem::path directory_;
  const int64_t min_free_bytes_;
  std::atomic<int64_t> wanted_bytes_;
};

}  // namespace dex::agent
