#pragma once

#include <google/protobuf/timestamp.pb.h>

#include <cstdint>

namespace dex::rpc {

// Milliseconds since 1970, as messages carry them, and back.
inline google::protobuf::Timestamp timestamp(int64_t unix_ms) {
  google::protobuf::Timestamp time;
  time.set_seconds(unix_ms / 1000);
  time.set_nanos(static_cast<int32_t>(unix_ms % 1000 * 1'000'000));
  return time;
}

inline int64_t unix_ms(const google::protobuf::Timestamp& time) {
  return time.seconds() * 1000 + time.nanos() / 1'000'000;
}

}  // namespace dex::rpc
