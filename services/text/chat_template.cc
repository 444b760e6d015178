#include "services/text/chat_template.h"

#include "services/base/sha256.h"
#include "services/text/ffi_border.h"
#include "services/text/message_spans.h"
#include "services/text/special_tokens.h"

namespace dex::text {

namespace {

base::Status template_failed(const std::string& what) {
  return base::invalid_argument("TEMPLATE_FAILED", "the chat template failed: " + what);
}

}  // namespace

base::Result<std::unique_ptr<ChatTemplate>> ChatTemplate::load(
    const std::filesystem::path& folder) {
  DEX_ASSIGN_OR_RETURN(ModelTextConfig config, ModelTextConfig::load(folder));
  if (!config.chat_template) {
    return base::failed_precondition(
        "TEMPLATE_FAILED",
        folder.string() +
            " has no chat template: neither chat_template.jinja nor chat_template in "
            "tokenizer_config.json; use rows of prompt and completion, or a model for chats");
  }
  return from_source(std::move(*config.chat_template), std::move(config.tokens));
}

base::Result<std::unique_ptr<ChatTemplate>> ChatTemplate::from_source(
    std::string source, std::map<std::string, std::string> special_tokens) {
  std::unique_ptr<ChatTemplate> chat_template(new ChatTemplate());
  std::string error;
  if (dex_template_open(detail::borrow(source), &chat_template->handle_, detail::into(error)) !=
      0) {
    return base::invalid_argument("TEMPLATE_FAILED", "not a usable chat template: " + error);
  }
  chat_template->knows_developer_ = source.find("developer") != std::string::npos;
  chat_template->sha256_ = base::sha256_hex(source);
  chat_template->source_ = std::move(source);
  chat_template->special_tokens_ = std::move(special_tokens);
  return chat_template;
}

ChatTemplate::~ChatTemplate() {
  dex_template_close(handle_);
}

base::Result<std::string> ChatTemplate::render(std::span<const Message> messages,
                                               bool add_generation_prompt) const {
  std::vector<DexMessage> list;
  list.reserve(messages.size());
  for (const Message& message : messages) {
    const bool as_system = message.role == "developer" && !knows_developer_;
    list.push_back({detail::borrow(as_system ? std::string_view("system") : message.role),
                    detail::borrow(message.content), detail::borrow(message.name)});
  }
  std::vector<DexPair> tokens;
  for (const auto& [key, value] : special_tokens_) {
    tokens.push_back({detail::borrow(key), detail::borrow(value)});
  }
  std::string text, error;
  const int code =
      dex_template_render(handle_, list.data(), list.size(), tokens.data(), tokens.size(),
                          add_generation_prompt, detail::into(text), detail::into(error));
  if (code != 0) return template_failed(error);
  return text;
}

base::Result<RenderedChat> ChatTemplate::render_with_spans(
    std::span<const Message> messages) const {
  RenderedChat chat;
  DEX_ASSIGN_OR_RETURN(chat.text, render(messages, false));
  const detail::Render again = [this](std::span<const Message> list, bool add_generation_prompt) {
    return render(list, add_generation_prompt);
  };
  auto spans = detail::spans_by_stand_ins(again, messages, chat.text);
  if (!spans) spans = detail::spans_by_prefixes(again, messages, chat.text);
  if (!spans) {
    return template_failed(
        "it changes the assistant's words, so that they can't be found again in its output; use "
        "rows of "
        "prompt and completion for this model");
  }
  chat.spans = std::move(*spans);
  return chat;
}

}  // namespace dex::text
