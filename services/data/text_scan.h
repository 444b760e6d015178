#pragma once

#include <functional>
#include <string_view>

namespace dex::data {

// Something in a text that a user should know of.
struct TextMark {
  std::string_view code;  // special_token_in_text, secret_like_text or replacement_character
  size_t begin = 0;       // bytes of the text
  size_t size = 0;
  std::string_view what;  // of a secret: its kind, "AWS access key"
};

// One pass over the text; the first mark of each code is reported. Special tokens are recognised by
// their looks
// (<|…|>, <s>, [INST] …): this layer has no tokenizer. Secrets by the fixed beginnings that issuers
// give them.
void scan_text(std::string_view text, const std::function<void(const TextMark&)>& report);

}  // namespace dex::data
