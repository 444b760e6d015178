#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

#include "services/base/status.h"

namespace dex::gateway::http {

// Protobuf JSON as this platform speaks it (api.md §1, doors): proto field names, full enum names,
// int64 as strings, RFC 3339 times, default values printed.
std::string to_json(const google::protobuf::Message& message);

// The way back, strict. INVALID_ARGUMENT: `UNKNOWN_FIELD` for keys that the message does not have,
// each with its path and the nearest known name, 20 at most; `INVALID_FIELD` for text that is no
// JSON object, nests deeper than 64, names a field twice or holds values of other types. Empty text
// is an empty message. Names may also be in lowerCamelCase, as protobuf allows.
base::Status from_json(std::string_view json, google::protobuf::Message& message);

}  // namespace dex::gateway::http
