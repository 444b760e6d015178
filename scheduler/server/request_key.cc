#include "scheduler/server/request_key.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

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
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);  // map entries in key order
    message.SerializeToCodedStream(&coded);
  }
  return base::sha256_hex(bytes);
}

}  // namespace dex::server
