#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/files.h"
#include "services/base/status.h"

namespace dex::base {

// A directory that readers find whole or not at all (jobs.md §7): files go into `<name>.tmp/`, each
// synced; the manifest is written last; commit renames and syncs the parent. Destroyed without
// commit, or after a failure, the temporary is removed. Failures are those of errno_status.h, so a
// full disk is STORAGE_FULL. Blocks on the disk. Not thread-safe; owned by one writer.
class AtomicDirectory {
 public:
  struct Entry {
    std::string name;
    int64_t size_bytes = 0;
    std::string sha256;
  };

  // Removes a `.tmp` that an earlier writer left. `final_path`, with or without a slash at its end,
  // must not exist; its parent must.
  static Result<AtomicDirectory> create(std::filesystem::path final_path,
                                        FileLayer& layer = system_files());
  ~AtomicDirectory();
  AtomicDirectory(AtomicDirectory&& other) noexcept;
  AtomicDirectory& operator=(AtomicDirectory&&) = delete;

  // One file at once. `name` is a plain file name.
  Status write(std::string_view name, std::string_view content);
  // One file in pieces: append to the writer, then hand it back to finish().
  Result<FileWriter> open(std::string_view name);
  Status finish(FileWriter writer);

  // What has been finished so far, in that order: the material of the manifest.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

  // Writes the manifest, syncs it and the directory, renames, syncs the parent. Only once.
  Status commit(std::string_view manifest_name, std::string_view manifest);

 private:
  AtomicDirectory(std::filesystem::path final_path, FileLayer& layer);
  void discard();

  std::filesystem::path final_;
  std::filesystem::path temporary_;
  FileLayer* layer_;
  bool open_ = false;
  std::vector<Entry> entries_;
};

}  // namespace dex::base
