#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "services/base/file_layer.h"
#include "services/base/sha256.h"
#include "services/base/status.h"

// Files on the local disk. Everything blocks on it; failures are those of errno_status.h. Together
// with atomic_directory.h this is the only code that renames (jobs.md §7). Functions are
// thread-safe for different paths.
namespace dex::base {

namespace fs = std::filesystem;

// The whole file. Larger than max_bytes → INVALID_ARGUMENT TOO_LARGE, before anything is allocated;
// not a regular file → INVALID_ARGUMENT NOT_A_FILE.
Result<std::string> read_file(const fs::path& path, int64_t max_bytes);

// Readers see the old content or the new one, and the new one survives a power cut once this
// returned OK. Writes `<path>.tmp`, syncs, renames, syncs the directory. After a failure the
// temporary is gone and the old file stands.
Status write_file_atomically(const fs::path& path, std::string_view content, mode_t mode = 0644,
                             FileLayer& layer = system_files());

// Writes one new file in pieces and hashes on the way. Refuses an existing file. close() syncs; a
// writer destroyed before it, or after a failure, removes its file. Not thread-safe.
class FileWriter {
 public:
  static Result<FileWriter> create(fs::path path, mode_t mode = 0644,
                                   FileLayer& layer = system_files());
  ~FileWriter();
  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&&) = delete;

  Status append(std::string_view bytes);
  // Syncs and closes. After a failed sync the file is removed, never retried: the kernel may
  // already have marked the lost pages clean.
  Status close();

  [[nodiscard]] int64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const std::string& sha256() const { return sha256_; }  // after close()
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  FileWriter(fs::path path, int fd, FileLayer& layer);
  Status fail(int error, std::string_view what);
  void discard();

  fs::path path_;
  int fd_ = -1;
  FileLayer* layer_;
  bool keep_ = false;
  int64_t size_bytes_ = 0;
  Sha256 hash_;
  std::string sha256_;
};

// Renames a file or directory within one file system and syncs both parents.
Status rename_durably(const fs::path& from, const fs::path& to, FileLayer& layer = system_files());
// Makes what a directory lists durable.
Status sync_directory(const fs::path& path, FileLayer& layer = system_files());
// mkdir -p; new directories get `mode` and their parents are synced.
Status make_directories(const fs::path& path, mode_t mode = 0700,
                        FileLayer& layer = system_files());
// rm -rf; missing is OK. Never follows a symbolic link.
Status remove_tree(const fs::path& path);
// What an unprivileged process may still write on the file system that holds `path`.
Result<int64_t> free_bytes(const fs::path& path);
// Free over total, 0–1.
Result<double> free_ratio(const fs::path& path);

}  // namespace dex::base
