#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dex::evaluate {

// What a token of a needle prompt belongs to (method.md §9.2): five parts, each token in one.
enum class PromptPart : uint8_t {
  kAnswer,        // the sentence whose number the answer begins with: the first needle asked for
  kOtherNeedles,  // the other needles, asked for or not
  kFirstToken,    // the prompt's first, whatever it is: models rest their attention there
  kQuestion,      // what is neither: question, how the answer begins, a chat template's own text
  kFiller,        // the rest of the haystack
};
inline constexpr std::array kPromptParts = {PromptPart::kAnswer, PromptPart::kOtherNeedles,
                                            PromptPart::kFirstToken, PromptPart::kQuestion,
                                            PromptPart::kFiller};
std::string_view name(PromptPart part);  // "answer", "other_needles", …

// A prompt's text with the haystack in it; `needles` are sentences of that, the answer's first.
struct NeedleText {
  std::string_view text;
  std::string_view haystack;
  std::span<const std::string> needles;
};
// The part of each of `tokens` tokens, as a number. `starts`: for each of the last starts.size()
// tokens the byte of the text where it begins, rising; tokens before them (BOS) have no text. A
// token that reaches into two parts belongs to the one of its last byte, since tokenizers put the
// blank before a word into the word's token. Throws std::runtime_error where haystack or needle is
// not in the text: a chat template has changed it.
std::vector<uint8_t> prompt_parts(const NeedleText& prompt, std::span<const uint32_t> starts,
                                  size_t tokens);

}  // namespace dex::evaluate
