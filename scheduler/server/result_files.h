#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dex/v1/files.pb.h"
#include "scheduler/server/job_events.h"
#include "scheduler/store/job_repository.h"
#include "services/base/status.h"

namespace dex::server {

// The two files that each ended fine-tuning job has: its curves as CSV and as JSON lines
// (result_files of api.md §3). They are made of the job's events when they are asked for and stored
// nowhere, so that they count in no quota and go with their job. Waits for store and disk.
// Thread-safe.
class ResultFiles {
 public:
  // Both outlive this object.
  ResultFiles(store::JobRepository& jobs, JobEvents& events) : jobs_(jobs), events_(events) {}

  enum class Kind { kCsv, kJsonl };
  // Ids need no record: the job's ULID, whose first character is 0 until the year 3084, with a 1 or
  // a 2 in its place.
  static std::string id(const std::string& job, Kind kind);
  // What an id of this form is of; nothing: it is that of an uploaded file, or of none.
  struct Named {
    std::string job;
    Kind kind;
  };
  static std::optional<Named> named(const std::string& id);
  // Those of a job in any state: none until a fine-tuning job has ended and trained.
  static std::vector<std::string> of(const store::JobRecord& job);

  // RESOURCE_NOT_FOUND unless the tenant's job has ended and has them.
  base::Result<v1::File> get(const std::string& tenant, const std::string& id);
  base::Result<std::string> content(const std::string& tenant, const std::string& id);
  // Newest job first; page_size, page_token and after as of any list of files.
  base::Result<v1::ListFilesResponse> list(const std::string& tenant,
                                           const v1::ListFilesRequest& request);

 private:
  base::Result<store::JobRecord> job_of(const std::string& tenant, const std::string& id);
  base::Result<std::string> make(const store::JobRecord& job, Kind kind);
  base::Result<v1::File> view(const store::JobRecord& job, const std::string& id);

  store::JobRepository& jobs_;
  JobEvents& events_;
};

}  // namespace dex::server
