#pragma once

#include <google/protobuf/message_lite.h>

#include <string>

namespace dex::proto {

// The wire form of `message` with map entries in key order: equal messages give equal bytes, so
// that they may be hashed and compared. Only within one version of protobuf: nothing stored relies
// on it for longer than a job.
std::string deterministic_bytes(const google::protobuf::MessageLite& message);

}  // namespace dex::proto
