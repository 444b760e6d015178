#include "services/gateway/openai/tokenizer_request.h"

#include "services/gateway/openai/chat_messages.h"

namespace dex::gateway::openai {

base::Result<v1::TokenizeRequest> read_tokenize(const json& body) {
  Faults faults;
  v1::TokenizeRequest request;
  ObjectReader reader(body, "", faults);
  request.set_model(reader.text("model").value_or(""));
  if (const auto v = reader.boolean("add_special_tokens")) request.set_add_special_tokens(*v);
  if (reader.boolean("return_token_strs").value_or(false))
    reader.unsupported("return_token_strs", "is not supported; /detokenize gives texts");
  const bool chat = body.contains("messages");
  if (const auto prompt = reader.text("prompt")) {
    request.set_text(*prompt);
    if (chat) faults.add("CONFLICTING_FIELDS", "messages", "do not go with prompt");
    reader.accept({"messages"});
  } else if (chat) {
    read_messages(reader, *request.mutable_chat());
    // A chat's special tokens are in its template, whatever is asked for.
    if (request.has_add_special_tokens() && request.add_special_tokens())
      reader.unsupported("add_special_tokens", "must be false with messages");
    request.clear_add_special_tokens();
  } else if (faults.empty()) {
    faults.add("MISSING_FIELD", "prompt", "or messages must be given");
  }
  reader.end();
  DEX_RETURN_IF_ERROR(faults.status());
  return request;
}

base::Result<v1::DetokenizeRequest> read_detokenize(const json& body) {
  Faults faults;
  v1::DetokenizeRequest request;
  ObjectReader reader(body, "", faults);
  request.set_model(reader.text("model").value_or(""));
  const auto ids = reader.integers("tokens", 0, INT32_MAX);
  if (!ids && faults.empty()) faults.add("MISSING_FIELD", "tokens", "must be given");
  for (const auto id : ids.value_or(std::vector<int64_t>()))
    request.add_ids(static_cast<int32_t>(id));
  reader.end();
  DEX_RETURN_IF_ERROR(faults.status());
  return request;
}

}  // namespace dex::gateway::openai
