#pragma once

#include <filesystem>
#include <memory>

#include "services/base/status.h"
#include "services/text/chat_template.h"
#include "services/text/tokenizer.h"

namespace dex::serve {

// What turns a model's text into ids and back. A folder may lack either: then `tokenizer` is null
// and only ids work, or `chat_template` is, and chats are refused. Immutable.
struct TextModel {
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;

  // Blocks on the disk. A file that is there but broken is an error.
  static base::Result<TextModel> load(const std::filesystem::path& folder);

  // The prompt's ids. Errors: FAILED_PRECONDITION without a tokenizer or template, TEMPLATE_FAILED,
  // bad UTF-8.
  base::Result<std::vector<int32_t>> encode_prompt(std::string_view text) const;
  base::Result<std::vector<int32_t>> encode_chat(std::span<const text::Message> messages) const;
  // The text that encode_chat() makes ids of, up to where the assistant's answer begins.
  base::Result<std::string> render_chat(std::span<const text::Message> messages) const;
};

}  // namespace dex::serve
