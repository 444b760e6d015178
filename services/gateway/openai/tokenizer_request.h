#pragma once

#include "dex/v1/inference.pb.h"
#include "services/gateway/openai/json_body.h"

// vLLM's requests to a tokenizer (api.md §7). `model` may be absent: the caller fills in a default.
// Pure.
namespace dex::gateway::openai {

// {model?, prompt | messages, add_special_tokens?}
base::Result<v1::TokenizeRequest> read_tokenize(const json& body);

// {model?, tokens}
base::Result<v1::DetokenizeRequest> read_detokenize(const json& body);

}  // namespace dex::gateway::openai
