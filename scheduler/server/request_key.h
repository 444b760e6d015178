#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "services/base/ids.h"
#include "services/base/status.h"

namespace dex::server {

// A client's request_id, or a new one when it sent none. INVALID_FIELD when it is longer than 64
// characters or has unprintable ones.
base::Result<std::string> request_key(const std::string& request_id, base::UlidGenerator& ids);

// SHA-256 of a message in deterministic form. The caller clears what does not count (request_id).
std::string message_sha256(const google::protobuf::Message& message);

}  // namespace dex::server
