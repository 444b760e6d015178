#pragma once

#include "dex/v1/files.pb.h"
#include "scheduler/store/records.h"

namespace dex::server {

// A file's `info` in the store is a v1::File with format, statistics, finding_counts and the first
// findings; the rest are fields of the record. Pure.
v1::File file_view(const store::FileRecord& record);

}  // namespace dex::server
