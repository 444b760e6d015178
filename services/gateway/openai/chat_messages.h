#pragma once

#include "dex/v1/inference.pb.h"
#include "services/gateway/openai/json_body.h"

namespace dex::gateway::openai {

// The `messages` of a chat: {role, content}, content a string or parts {"type": "text", "text"},
// which are put together. Fields of a message that came back from a model and hold nothing
// ("refusal": null, "tool_calls": []) are taken; what would have an effect elsewhere and has none
// here (name, tool_calls …) is UNSUPPORTED_PARAMETER.
void read_messages(ObjectReader& reader, v1::ChatInput& chat);

}  // namespace dex::gateway::openai
