#include "worker/evaluate/prompt_parts.h"

#include <algorithm>
#include <stdexcept>

namespace dex::evaluate {
namespace {

// Gives the bytes of `piece`, from `from` on, to a part.
void mark(std::string_view text, std::string_view piece, size_t from, PromptPart part,
          std::vector<uint8_t>& bytes) {
  const size_t at = text.find(piece, from);
  if (at == std::string_view::npos) {
    throw std::runtime_error("the chat template changes the text of the message: \"" +
                             std::string(piece.substr(0, 60)) +
                             "\" is not in the prompt; ask without --chat");
  }
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), piece.size(),
              static_cast<uint8_t>(part));
}

}  // namespace

std::string_view name(PromptPart part) {
  switch (part) {
    case PromptPart::kAnswer:
      return "answer";
    case PromptPart::kOtherNeedles:
      return "other_needles";
    case PromptPart::kFirstToken:
      return "first_token";
    case PromptPart::kQuestion:
      return "question";
    case PromptPart::kFiller:
      return "filler";
  }
  return "";
}

std::vector<uint8_t> prompt_parts(const NeedleText& prompt, std::span<const uint32_t> starts,
                                  size_t tokens) {
  const std::string_view text = prompt.text;
  std::vector<uint8_t> bytes(text.size(), static_cast<uint8_t>(PromptPart::kQuestion));
  mark(text, prompt.haystack, 0, PromptPart::kFiller, bytes);
  const size_t haystack = text.find(prompt.haystack);
  for (size_t n = 0; n < prompt.needles.size(); ++n)
    mark(text, prompt.needles[n], haystack,
         n == 0 ? PromptPart::kAnswer : PromptPart::kOtherNeedles, bytes);

  if (starts.size() > tokens) throw std::runtime_error("a prompt's text has more tokens than it");
  // Before the text's own tokens there is only what a tokenizer puts in front: the first token.
  std::vector<uint8_t> parts(tokens, static_cast<uint8_t>(PromptPart::kFirstToken));
  const size_t lead = tokens - starts.size();
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t next = i + 1 < starts.size() ? starts[i + 1] : text.size();
    const size_t last = std::max<size_t>(starts[i], next - (next > 0 ? 1 : 0));
    parts[lead + i] = bytes[std::min(last, bytes.size() - 1)];
  }
  if (!parts.empty()) parts[0] = static_cast<uint8_t>(PromptPart::kFirstToken);
  return parts;
}

}  // namespace dex::evaluate
