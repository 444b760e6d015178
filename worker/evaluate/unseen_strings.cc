#include "worker/evaluate/unseen_strings.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace dex::evaluate {
namespace {

struct SourceWord {
  std::string text;  // lower case, without a number's commas
  bool number = false;
  bool capital = false;
  bool first = false;  // of a sentence
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 128;
}

// Bytes of U+2000 … U+203F (E2 80 80 … E2 80 BF) or of a no-break space (C2 A0) at `i`; 0: neither.
size_t wide_break(std::string_view text, size_t i) {
  if (text.substr(i, 2) == "\xE2\x80" && i + 2 < text.size()) return 3;
  return text.substr(i, 2) == "\xC2\xA0" ? 2 : 0;
}

// "'s" and "’s": a name and its possessive are one string.
size_t possessive(std::string_view text, size_t i) {
  for (const std::string_view mark : {std::string_view("'s"), std::string_view("\xE2\x80\x99s")}) {
    if (!text.substr(i).starts_with(mark)) continue;
    const size_t end = i + mark.size();
    if (end == text.size() || (!is_letter(text[end]) && !is_digit(text[end]))) return mark.size();
  }
  return 0;
}

std::vector<SourceWord> words_in(std::string_view text) {
  std::vector<SourceWord> out;
  SourceWord word;
  bool sentence_begins = true;
  const auto end_word = [&] {
    if (!word.text.empty()) out.push_back(word);
    word = {};
  };
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t wide = wide_break(text, i);
    const bool inside_number = (c == '.' || c == ',') && i > 0 && is_digit(text[i - 1]) &&
                               i + 1 < text.size() && is_digit(text[i + 1]);
    if (const size_t mark = word.text.empty() ? 0 : possessive(text, i); mark > 0) {
      end_word();
      i += mark;
    } else if (wide == 0 && (is_letter(c) || is_digit(c) || inside_number)) {
      if (word.text.empty()) {
        word.capital = c >= 'A' && c <= 'Z';
        word.first = sentence_begins;
        sentence_begins = false;
      }
      word.number = word.number || is_digit(c);
      if (c != ',') word.text += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      ++i;
    } else {
      end_word();
      sentence_begins = sentence_begins || c == '.' || c == '!' || c == '?' || c == '\n';
      i += std::max<size_t>(wide, 1);
    }
  }
  end_word();
  return out;
}

}  // namespace

UnseenStrings unseen_strings(std::string_view output, std::string_view source) {
  std::set<std::string, std::less<>> known;
  for (SourceWord& word : words_in(source)) known.insert(std::move(word.text));
  UnseenStrings out;
  for (const SourceWord& word : words_in(output)) {
    ++out.words;
    const bool name = word.capital && !word.first && word.text != "i";
    if ((word.number || name) && !known.contains(word.text)) ++out.unseen;
  }
  return out;
}

}  // namespace dex::evaluate
