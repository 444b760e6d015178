#pragma once

#include <google/protobuf/timestamp.pb.h>

#include <cstdint>

namespace dex::agent {

inline google::protobuf::Timestamp timestamp(int64_t unix_ms) {
  google::protobuf::Timestamp time;
  time.set_seconds(unix_ms / 1000);
  time.set_nanos(static_cast<int32_t>(unix_ms % 1000 * 1'000'000));
  return time;
}

}  // namespace dex::agent
