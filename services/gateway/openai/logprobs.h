#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <optional>
#include <string>
#include <string_view>

#include "dex/v1/inference.pb.h"
#include "services/gateway/openai/json_body.h"

// Log-probabilities in OpenAI's two dialects (api.md §6, §7). Pure.
namespace dex::gateway::openai {

using LogprobList = google::protobuf::RepeatedPtrField<v1::TokenLogprob>;

// Where the next token of a choice begins in its text, in characters (code points, as Python counts
// them). A choice that is streamed keeps one for all of its chunks.
struct TextPosition {
  int64_t characters = 0;
  // The offset of a token with these bytes, and on to the next one. One that goes on with a
  // character that the token before began is where that character is.
  int64_t take(std::string_view bytes);
};

// {tokens, token_logprobs, top_logprobs, text_offset} of completions. The first token of an echoed
// prompt has null for both numbers; in top_logprobs is the chosen token too, with the identical
// number.
json completion_logprobs(const LogprobList& entries, TextPosition& position);

// {content: [{token, bytes, logprob, top_logprobs[]}], refusal: null} of chats. With `top` 0 the
// lists of the likeliest are empty, as OpenAI's.
json chat_logprobs(const LogprobList& entries, int top);

// The bytes behind a token's name; "bytes:\xe2\x82" is how one is called that is not whole UTF-8.
// Nothing for "token_id:7", which tells equal texts apart.
std::optional<std::string> token_bytes(std::string_view name);

}  // namespace dex::gateway::openai
