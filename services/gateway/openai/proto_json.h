#pragma once

#include <google/protobuf/message.h>
#include <google/protobuf/timestamp.pb.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "services/gateway/openai/json_body.h"

// Between our messages and the JSON around them. Pure.
namespace dex::gateway::openai {

// The message in protobuf JSON: proto field names, full enum names, int64 as strings; fields that
// are not set are left out. What stands under the key `dex` of OpenAI's objects.
json to_json(const google::protobuf::Message& message);

// Reads protobuf JSON into `message`, on top of what it holds. Every fault goes to `faults` by its
// path below `path`: UNKNOWN_FIELD (with the nearest field of that message), INVALID_FIELD.
void read_message(const json& value, const std::string& path, google::protobuf::Message& message,
                  Faults& faults);

// Unix seconds, or null where the time is not set.
json unix_seconds(const google::protobuf::Timestamp& time);

// "JOB_STATE_QUEUED" → "queued": the value's name without the prefix, in lower case.
std::string lower_name(std::string_view value, std::string_view prefix);

}  // namespace dex::gateway::openai
