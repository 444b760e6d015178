#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/server/data_layout.h"
#include "scheduler/store/records.h"
#include "services/base/status.h"

namespace dex::server {

// Names of what a SUCCEEDED job published, each with its SHA-256; of checksums.json, held against
// the hash that was published. DATA_LOSS ARTIFACT_CORRUPT when it is not what it was. Blocks on the
// disk.
base::Result<std::map<std::string, std::string>> published_checksums(const store::JobRecord& record,
                                                                     const DataLayout& layout);

// The same of an evaluation in any state; before it has SUCCEEDED FAILED_PRECONDITION
// JOB_STATE_CONFLICT, saying that `what` ("its samples are") will be there then.
base::Result<std::map<std::string, std::string>> evaluation_checksums(
    const store::JobRecord& record, const DataLayout& layout, const std::string& what);

// Reads `name` of what a SUCCEEDED job published, held against its checksum in the same way.
base::Result<std::string> published_file(const store::JobRecord& record, const DataLayout& layout,
                                         const std::string& name);

// The names in checksums.json that end with `ending`, ascending; same errors.
base::Result<std::vector<std::string>> published_names(const store::JobRecord& record,
                                                       const DataLayout& layout,
                                                       const std::string& ending);

// A file of the attempt that a SUCCEEDED job published from, beside what it published: under no
// hash. Nothing: it has none. Blocks on the disk.
base::Result<std::optional<std::string>> attempt_file(const store::JobRecord& record,
                                                      const DataLayout& layout,
                                                      const std::string& name);

// The same error, of what was read but can't be understood.
base::Status corrupt_results(const std::string& job, const std::string& what);

}  // namespace dex::server
