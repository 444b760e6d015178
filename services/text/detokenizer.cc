#include "services/text/detokenizer.h"

#include <unordered_map>

namespace dex::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer),
      options_(options),
      spaces_to_strip_(tokenizer.strip_leading_spaces()) {}

std::string Detokenizer::push(int32_t id) {
  if (options_.skip_special_tokens && tokenizer_.is_special(id)) return {};
  std::string_view bytes = tokenizer_.token_bytes(id);
  while (spaces_to_strip_ > 0 && !bytes.empty()) {
    if (bytes.front() != ' ') {
      spaces_to_strip_ = 0;
      break;
    }
    bytes.remove_prefix(1);
    --spaces_to_strip_;
  }
  return stream_.push(bytes);
}

std::string Detokenizer::finish() {
  spaces_to_strip_ = tokenizer_.strip_leading_spaces();
  return stream_.finish();
}

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  const std::string_view bytes = tokenizer.token_bytes(id);
  if (is_valid_utf8(bytes)) return std::string(bytes);
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
  }
  return text;
}

std::vector<std::string> distinct_token_texts(const Tokenizer& tokenizer,
                                              std::span<const int32_t> ids) {
  std::vector<std::string> texts;
  std::unordered_map<std::string, int32_t> owner;
  for (const int32_t id : ids) {
    std::string text = token_text(tokenizer, id);
    if (const auto [entry, is_new] = owner.emplace(text, id); !is_new && entry->second != id) {
      text = "token_id:" + std::to_string(id);
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

}  // namespace dex::text
