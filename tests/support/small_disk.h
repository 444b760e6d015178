#pragma once

#include <cstdint>
#include <filesystem>

namespace dex::support {

// From now on this process, and all that it will start, may mount what nobody else sees. Before the
// first thread. Needs root, or a kernel that gives user namespaces to everybody; throws without.
void enter_own_mounts();

// A disk so small that it really gets full: a tmpfs, mounted until this object ends. What is still
// open on it then lives on until it is closed.
class SmallDisk {
 public:
  // On `folder`, which is made when missing. Throws.
  SmallDisk(std::filesystem::path folder, int64_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  // Takes all that is free, to the last byte.
  void fill() const;
  // What fill() took is free again.
  void make_room() const;

 private:
  const std::filesystem::path folder_;
};

}  // namespace dex::support
