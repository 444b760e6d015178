#pragma once

#include <filesystem>
#include <string>

#include "services/base/status.h"

namespace dex::agent {

// Between scheduler and agent paths are relative to the shared data directory; trainer and engine
// get absolute ones. Pure: asks no file system, follows no link.
class DataPaths {
 public:
  explicit DataPaths(std::filesystem::path data_dir);  // absolute

  // "jobs/default/ftjob-…/attempt-1" → DIR/jobs/…; an absolute path must lie below DIR. Empty, `..`
  // or outside → INVALID_ARGUMENT PATH_NOT_ALLOWED.
  [[nodiscard]] base::Result<std::filesystem::path> absolute(const std::string& path) const;
  // The way back, under the same conditions.
  [[nodiscard]] base::Result<std::string> relative(const std::string& path) const;

  [[nodiscard]] const std::filesystem::path& data_dir() const { return data_dir_; }

 private:
  std::filesystem::path data_dir_;
};

}  // namespace dex::agent
