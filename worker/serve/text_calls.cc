#include "worker/serve/text_calls.h"

#include <string>
#include <vector>

#include "worker/serve/wire.h"

namespace dex::serve {
namespace {

namespace pb = dex::v1;
using dex::internal::v1::EngineCommand;
using dex::internal::v1::EngineReport;

// No use has more: a context of text, many times over. Also keeps the answer within a frame, for a
// frame that does not fit ends the engine for everybody.
constexpr size_t kLongestText = 1 << 20;
constexpr int kMostIds = 1 << 17;
constexpr size_t kLongestAnswer = 3 << 20;
constexpr size_t kMostAnswerIds = kLongestAnswer / 4;  // of at most four bytes (model/config.cc)

base::Status too_long(const char* field, size_t size, size_t most) {
  return base::bad_field("CONTEXT_LENGTH_EXCEEDED", field,
                         "takes at most " + std::to_string(most) + ", got " + std::to_string(size));
}

base::Result<std::vector<int32_t>> encode(const pb::TokenizeRequest& in, const TextModel& text) {
  if (in.input_case() == pb::TokenizeRequest::kText) {
    if (in.text().size() > kLongestText) return too_long("text", in.text().size(), kLongestText);
    if (text.tokenizer == nullptr) return text.encode_prompt({});  // says that there is none
    return text.tokenizer->encode(in.text(),
                                  !in.has_add_special_tokens() || in.add_special_tokens());
  }
  if (in.chat().messages().empty())
    return base::bad_field("MISSING_FIELD", "text", "or chat.messages must be given");
  if (in.has_add_special_tokens()) {
    return base::bad_field("UNUSED_FIELD", "add_special_tokens",
                           "has no effect on a chat: its template writes the special tokens");
  }
  std::vector<text::Message> messages;
  size_t bytes = 0;
  for (const auto& message : in.chat().messages()) {
    messages.push_back({.role = message.role(), .content = message.content()});
    bytes += message.role().size() + message.content().size();
  }
  if (bytes > kLongestText) return too_long("chat.messages", bytes, kLongestText);
  return text.encode_chat(messages);
}

base::Result<std::string> decode(const pb::DetokenizeRequest& in, const TextModel& text) {
  if (in.ids_size() > kMostIds)
    return too_long("ids", static_cast<size_t>(in.ids_size()), kMostIds);
  if (text.tokenizer == nullptr) return text.encode_prompt({}).status();
  DEX_ASSIGN_OR_RETURN(
      std::string decoded,
      text.tokenizer->decode(std::vector<int32_t>(in.ids().begin(), in.ids().end()), false));
  if (decoded.size() > kLongestAnswer) return too_long("ids", decoded.size(), kLongestAnswer);
  return decoded;
}

std::optional<std::string> special(const text::Tokenizer& tokenizer, const char* name) {
  const auto id = tokenizer.special_id(name);
  if (!id) return std::nullopt;
  return std::string(tokenizer.token_bytes(*id));
}

base::Result<pb::TokenizerInfo> info_of(const TextModel& text) {
  if (text.tokenizer == nullptr) return text.encode_prompt({}).status();
  pb::TokenizerInfo info;
  if (auto token = special(*text.tokenizer, "bos_token")) info.set_bos_token(*token);
  if (auto token = special(*text.tokenizer, "eos_token")) info.set_eos_token(*token);
  if (auto token = special(*text.tokenizer, "pad_token")) info.set_pad_token(*token);
  if (text.chat_template != nullptr) info.set_chat_template(text.chat_template->source());
  info.set_tokenizer_sha256(text.tokenizer->sha256());
  return info;
}

base::Status fill(const EngineCommand::Text& in, const TextModel& text, const RequestLimits& limits,
                  EngineReport::Text& out) {
  switch (in.ask_case()) {
    case EngineCommand::Text::kTokenize: {
      DEX_ASSIGN_OR_RETURN(const auto ids, encode(in.tokenize(), text));
      if (ids.size() > kMostAnswerIds) return too_long("ids", ids.size(), kMostAnswerIds);
      auto& answer = *out.mutable_tokenize();
      answer.mutable_ids()->Add(ids.begin(), ids.end());
      answer.set_max_model_len(limits.context_tokens);
      return {};
    }
    case EngineCommand::Text::kDetokenize: {
      DEX_ASSIGN_OR_RETURN(*out.mutable_detokenize()->mutable_text(),
                           decode(in.detokenize(), text));
      return {};
    }
    case EngineCommand::Text::kInfo: {
      DEX_ASSIGN_OR_RETURN(*out.mutable_info(), info_of(text));
      return {};
    }
    case EngineCommand::Text::ASK_NOT_SET:
      break;
  }
  return base::Status(base::Code::kUnimplemented, "NOT_SUPPORTED",
                      "this engine is older than its agent and does not know the call");
}

}  // namespace

void answer_text(const EngineCommand::Text& in, const TextModel& text, const RequestLimits& limits,
                 EngineReport::Text& out) {
  out.set_request(in.request());
  const base::Status status = fill(in, text, limits, out);
  if (!status.ok()) wire::write(status, *out.mutable_error());
}

}  // namespace dex::serve
