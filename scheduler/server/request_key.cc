#include "scheduler/server/request_key.h"

#include <algorithm>

#include "proto/deterministic_bytes.h"
#include "services/base/sha256.h"

namespace dex::server {

base::Result<std::string> request_key(const std::string& request_id, base::UlidGenerator& ids) {
  if (request_id.empty()) return ids.make("server-");
  const bool printable =
      std::all_of(request_id.begin(), request_id.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (request_id.size() <= 64 && printable) return request_id;
  return base::invalid_field("request_id", "must be 1 to 64 printable characters without spaces");
}

std::string message_sha256(const google::protobuf::Message& message) {
  return base::sha256_hex(proto::deterministic_bytes(message));
}

std::string request_sha256(const google::protobuf::Message& message) {
  return base::sha256_hex(message.GetTypeName() + "\n" + proto::deterministic_bytes(message));
}

}  // namespace dex::server
