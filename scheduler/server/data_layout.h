#pragma once

#include <filesystem>
#include <string>

#include "services/base/status.h"

namespace dex::server {

// Where things lie below the data directory that scheduler and workers share. Every name that goes
// into a path is an id, a tenant or a hash, never something a user wrote (jobs.md §10). Relative
// paths are what the store keeps and what workers are told.
class DataLayout {
 public:
  explicit DataLayout(std::filesystem::path data_dir) : root_(std::move(data_dir)) {}

  // Makes the directories that always exist.
  [[nodiscard]] base::Status prepare() const;

  // "files/sha256/ab/cd/<sha256>"
  [[nodiscard]] static std::string blob(const std::string& sha256);
  // "jobs/<tenant>/<job>/attempt-<epoch>"
  [[nodiscard]] static std::string attempt(const std::string& tenant, const std::string& job,
                                           int64_t epoch);
  // Whether a path is "jobs/<a tenant>/<job>/attempt-<epoch>/<something>", written plainly. `epoch`
  // −1: any of the job's attempts. What workers point to lies there (jobs.md §4, fence).
  [[nodiscard]] static bool is_in_attempt(const std::string& path, const std::string& job,
                                          int64_t epoch = -1);
  // "jobs/<tenant>/<job>": everything that a job has on the disk.
  [[nodiscard]] static std::string job(const std::string& tenant, const std::string& job);
  // "jobs/<tenant>/<job>/texts.jsonl": rows that came with the request of a preview.
  [[nodiscard]] static std::string texts(const std::string& tenant, const std::string& job);
  // "jobs/<tenant>/<job>/upload": the files of an adapter that is imported, as they came.
  [[nodiscard]] static std::string uploaded_adapter(const std::string& tenant,
                                                    const std::string& job);
  // Of a job that has ended: its events, and of one that was deleted the spec that its adapter came
  // from (a serialized FineTuningJob, as the store had it).
  [[nodiscard]] std::filesystem::path events(const std::string& tenant,
                                             const std::string& job) const;
  [[nodiscard]] std::filesystem::path kept_spec(const std::string& tenant,
                                                const std::string& job) const;
  // Held by the one process that archives and removes ended jobs.
  [[nodiscard]] std::filesystem::path retention_lock() const { return root_ / "retention.lock"; }
  [[nodiscard]] const std::filesystem::path& root() const { return root_; }
  // Folders to walk through: blobs two levels down, temporaries of uploads, findings of files, and
  // <tenant>/<job>/attempt-<epoch>.
  [[nodiscard]] std::filesystem::path all_blobs() const { return root_ / "files/sha256"; }
  [[nodiscard]] std::filesystem::path all_uploads() const { return root_ / "files/upload"; }
  [[nodiscard]] std::filesystem::path all_findings() const { return root_ / "files/findings"; }
  [[nodiscard]] std::filesystem::path all_jobs() const { return root_ / "jobs"; }

  [[nodiscard]] std::filesystem::path upload(const std::string& name) const;    // a temporary
  [[nodiscard]] std::filesystem::path findings(const std::string& file) const;  // of one file id

  // An absolute path of a relative one; PATH_NOT_ALLOWED when it would leave the data directory.
  [[nodiscard]] base::Result<std::filesystem::path> absolute(const std::string& relative) const;

 private:
  std::filesystem::path root_;
};

}  // namespace dex::server
