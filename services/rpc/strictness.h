#pragma once

#include <google/protobuf/message.h>

#include "services/base/status.h"

namespace dex::rpc {

// INVALID_ARGUMENT `UNKNOWN_FIELD` when the message, or one inside it, carries fields that this
// server's .proto files do not know; each is named by path and number. Nothing a client sends is
// ignored silently (api.md §1, strictness): a client newer than the server learns it at once.
// Not looked into: google.protobuf.Any. At most 20 fields are named.
base::Status check_known_fields(const google::protobuf::Message& message);

}  // namespace dex::rpc
