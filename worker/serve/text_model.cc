#include "worker/serve/text_model.h"

namespace dex::serve {
namespace {

base::Status no_tokenizer() {
  return base::failed_precondition(
      "NOT_SUPPORTED", "the model's folder has no tokenizer.json; give token ids instead of text");
}

}  // namespace

base::Result<TextModel> TextModel::load(const std::filesystem::path& folder) {
  TextModel out;
  std::error_code ignored;
  if (!std::filesystem::exists(folder / "tokenizer.json", ignored)) return out;
  DEX_ASSIGN_OR_RETURN(out.tokenizer, text::Tokenizer::load(folder));
  auto chat = text::ChatTemplate::load(folder);
  if (chat.ok()) {
    out.chat_template = std::move(chat).value();
  } else if (chat.status().code() !=
             base::Code::kFailedPrecondition) {  // that one means: there is none
    return chat.status();
  }
  return out;
}

base::Result<std::vector<int32_t>> TextModel::encode_prompt(std::string_view text) const {
  if (tokenizer == nullptr) return no_tokenizer();
  return tokenizer->encode(text, true);
}

base::Result<std::vector<int32_t>> TextModel::encode_chat(
    std::span<const text::Message> messages) const {
  if (tokenizer == nullptr) return no_tokenizer();
  DEX_ASSIGN_OR_RETURN(const std::string rendered, render_chat(messages));
  return tokenizer->encode(rendered, false);  // the template wrote the special tokens
}

base::Result<std::string> TextModel::render_chat(std::span<const text::Message> messages) const {
  if (chat_template == nullptr) {
    return base::failed_precondition(
        "NOT_SUPPORTED", "the model has no chat template; give a prompt instead of messages");
  }
  return chat_template->render(messages, true);
}

}  // namespace dex::serve
