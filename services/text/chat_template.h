#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/text/row.h"

struct DexTemplate;

namespace dex::text {

// Bytes [begin, end) of a rendering.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  // False: exactly the message's words. True: everything from the end of the prompt that serving
  // would send to the end of the turn, end-of-turn token and what follows it included.
  bool whole_turn = false;
};

struct RenderedChat {
  std::string text;
  std::vector<std::optional<Span>> spans;  // one a message; absent if the template does not show it
};

// A model's chat template, rendered as transformers' apply_chat_template does (Jinja2 with
// trim_blocks and lstrip_blocks, raise_exception, tojson). Training and serving use this one class,
// so both see the same text; there is no strftime_now, as a prompt must not depend on the day.
// Thread-safe. Time and output of a rendering are bounded; every failure is INVALID_ARGUMENT
// TEMPLATE_FAILED with the template's own words.
class ChatTemplate {
 public:
  // chat_template.jinja of the folder, else the template in tokenizer_config.json. A folder without
  // one is FAILED_PRECONDITION. Blocks on the disk.
  static base::Result<std::unique_ptr<ChatTemplate>> load(const std::filesystem::path& folder);
  // `special_tokens`: "bos_token" → "<s>" and so on.
  static base::Result<std::unique_ptr<ChatTemplate>> from_source(
      std::string source, std::map<std::string, std::string> special_tokens);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // `add_generation_prompt` ends the text where the assistant's next words begin. A message of the
  // role developer is shown as system where the template does not know that role.
  base::Result<std::string> render(std::span<const Message> messages,
                                   bool add_generation_prompt) const;
  // The whole chat and where each message's words are in it. Fails if an assistant message can't be
  // found.
  base::Result<RenderedChat> render_with_spans(std::span<const Message> messages) const;

  const std::string& source() const { return source_; }
  const std::string& sha256() const { return sha256_; }  // of the template's text

 private:
  ChatTemplate() = default;

  DexTemplate* handle_ = nullptr;
  std::string source_;
  std::string sha256_;
  std::map<std::string, std::string> special_tokens_;
  bool knows_developer_ = false;
};

}  // namespace dex::text
