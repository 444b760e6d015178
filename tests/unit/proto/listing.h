#pragma once

#include <google/protobuf/descriptor.pb.h>

#include <string>
#include <vector>

namespace dex::contract {

// What .proto files promise, as text that reads well in a diff: one line for each thing that a
// client, a stored byte or another version of our programs depends on.
//
//   dex.v1.FineTuningJob = message
//   dex.v1.FineTuningJobSpec.seed = 8 optional int64
//   dex.v1.FineTuningJobSpec.dex = 9 oneof method dex.v1.DexMethod
//   dex.v1.FineTuningJobSpec.metadata = 7 map<string, string>
//   dex.v1.FineTuningJobSpec reserved 20            also a name: reserved old_name
//   dex.v1.JobState.JOB_STATE_QUEUED = 1
//   dex.v1.FileService.UploadFile = rpc (stream dex.v1.UploadFileRequest) returns (dex.v1.File)
//
// `optional` stands before scalars and enums that know whether they were set; messages always do.
using Listing = std::vector<std::string>;

// Files in the set's order by name, each in the order of its declarations; only packages that start
// with `package`. The set names every import (protoc --include_imports). Throws
// std::invalid_argument for a set that does not fit together.
Listing list_contract(const google::protobuf::FileDescriptorSet& set, const std::string& package);

}  // namespace dex::contract
