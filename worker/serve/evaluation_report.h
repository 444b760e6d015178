#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dex/v1/evaluation.pb.h"

// What an evaluation leaves on the disk: step-<n>/ with the first n tasks' results and samples, so
// that a later attempt goes on behind them, and final/, which is published (jobs.md §7). Everything
// blocks on the disk.
namespace dex::serve {

// The disk did not take what was to be saved.
class DiskFailure : public std::runtime_error {
 public:
  enum class Kind {
    kFull,   // another worker, or a little later
    kQuota,  // its owner's: no other try would end otherwise
    kOther,
  };
  DiskFailure(const std::string& message, Kind kind) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

struct SavedReport {
  std::filesystem::path path;
  std::string manifest_sha256;
  int64_t bytes = 0;
};

using SavedFiles = std::vector<std::pair<std::string, std::string>>;  // file name, content

// Writes `directory`: results.json (EvaluationReport in protobuf JSON), report.md when `markdown`
// is not empty, `files` (samples, pictures, what tasks export), and `manifest`, {file: sha256},
// last. Whole or not at all. Throws DiskFailure.
SavedReport save_report(const std::filesystem::path& directory, const std::string& manifest,
                        const dex::v1::EvaluationReport& report, const std::string& markdown,
                        const SavedFiles& files = {});

// Reads results.json of a step back and holds it against the manifest, the manifest against its
// hash. Throws std::runtime_error when anything is not what was saved.
dex::v1::EvaluationReport load_report(const std::filesystem::path& directory,
                                      const std::string& manifest,
                                      const std::string& manifest_sha256);

// The files whose names begin with `prefix`, by name, each held against the manifest in the same
// way. Throws as load_report.
SavedFiles load_files(const std::filesystem::path& directory, const std::string& manifest,
                      const std::string& manifest_sha256, const std::string& prefix);

}  // namespace dex::serve
