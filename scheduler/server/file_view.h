#pragma once

#include "dex/v1/files.pb.h"
#include "scheduler/store/records.h"
#include "services/base/status.h"

namespace dex::server {

// A file's `info` in the store is a v1::File with format, statistics, finding_counts and the first
// findings; the rest are fields of the record. Pure.
v1::File file_view(const store::FileRecord& record);

// FileRecord::purpose of FILE_PURPOSE_EVALS; every other text is FILE_PURPOSE_FINE_TUNE.
inline constexpr const char* kEvalsPurpose = "evals";

// RESOURCE_NOT_FOUND of what is no id of a file.
base::Status check_file_id(const std::string& id);

// FILE_INVALID or FILE_NOT_READY unless a job may read the file; `field` names it in the error.
base::Status require_ready(const store::FileRecord& record, const std::string& field);

}  // namespace dex::server
