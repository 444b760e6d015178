#include "services/text/message_spans.h"

#include <algorithm>
#include <charconv>

namespace dex::text::detail {

namespace {

// Private-use characters: no template asks for them, and the words themselves are not in the second
// rendering.
constexpr std::string_view kOpen = "\xEE\x80\x80";   // U+E000
constexpr std::string_view kClose = "\xEE\x80\x81";  // U+E001
constexpr std::string_view kSpaces = " \t\n\r\v\f";

std::string_view trim_left(std::string_view text) {
  const size_t at = text.find_first_not_of(kSpaces);
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

std::string_view trim_right(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

// A piece of the second rendering: the template's own text, then a message's stand-in.
struct Piece {
  std::string_view literal;
  std::optional<size_t> message;  // absent after the last stand-in
};

std::vector<Piece> cut_at_stand_ins(std::string_view text, size_t message_count) {
  std::vector<Piece> pieces;
  while (true) {
    const size_t open = text.find(kOpen);
    if (open == std::string_view::npos) break;
    const std::string_view number = text.substr(open + kOpen.size());
    size_t message = 0;
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), message);
    const size_t digits = static_cast<size_t>(end - number.data());
    if (error != std::errc() || !number.substr(digits).starts_with(kClose) ||
        message >= message_count)
      break;
    pieces.push_back({text.substr(0, open), message});
    text = number.substr(digits + kClose.size());
  }
  pieces.push_back({text, std::nullopt});
  return pieces;
}

bool has_all_assistant_spans(std::span<const Message> messages, const Spans& spans) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "assistant" && !spans[i]) return false;
  }
  return true;
}

}  // namespace

std::optional<Spans> spans_by_stand_ins(const Render& render, std::span<const Message> messages,
                                        std::string_view rendered) {
  std::vector<Message> stand_ins(messages.begin(), messages.end());
  for (size_t i = 0; i < stand_ins.size(); ++i) {
    stand_ins[i].content = std::string(kOpen) + std::to_string(i) + std::string(kClose);
  }
  const auto second = render(stand_ins, false);
  if (!second.ok()) return std::nullopt;
  const std::vector<Piece> pieces = cut_at_stand_ins(*second, messages.size());

  Spans spans(messages.size());
  if (!rendered.starts_with(pieces.front().literal)) return std::nullopt;
  size_t at = pieces.front().literal.size();
  for (size_t p = 0; p + 1 < pieces.size(); ++p) {
    const size_t message = *pieces[p].message;
    const std::string_view words = messages[message].content;
    const std::string_view next = pieces[p + 1].literal;
    const bool last = p + 2 == pieces.size();
    // Some templates trim. What follows the words decides which of the four it was.
    const std::string_view forms[] = {words, trim_left(trim_right(words)), trim_right(words),
                                      trim_left(words)};
    const auto fits = [&](std::string_view form) {
      if (!rendered.substr(at).starts_with(form)) return false;
      const std::string_view rest = rendered.substr(at + form.size());
      return last ? rest == next : rest.starts_with(next);
    };
    const auto form = std::ranges::find_if(forms, fits);
    if (form == std::end(forms)) return std::nullopt;
    if (spans[message]) return std::nullopt;  // shown twice: which one is trained?
    spans[message] = Span{at, at + form->size(), false};
    at += form->size() + next.size();
  }
  if (!has_all_assistant_spans(messages, spans)) return std::nullopt;
  return spans;
}

std::optional<Spans> spans_by_prefixes(const Render& render, std::span<const Message> messages,
                                       std::string_view rendered) {
  constexpr size_t kMaxMessages = 64;
  if (messages.size() > kMaxMessages) return std::nullopt;
  Spans spans(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role != "assistant") continue;
    const auto before = render(messages.first(i), true);
    const auto through = render(messages.first(i + 1), false);
    if (!before.ok() || !through.ok()) return std::nullopt;
    if (!rendered.starts_with(*through) || !through->starts_with(*before)) return std::nullopt;
    spans[i] = Span{before->size(), through->size(), true};
  }
  return spans;
}

}  // namespace dex::text::detail
