#include "worker/evaluate/unseen_strings.h"

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "services/text/characters.h"

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

// A byte of a letter, digit or symbol: of what words are made.
bool is_of_word(const text::Characters& in, size_t i) {
  return in.kinds[i] == text::CharacterKind::kOther || in.kinds[i] == text::CharacterKind::kCapital;
}

// "'s" and "’s": a name and its possessive are one string.
size_t possessive(const text::Characters& in, size_t i) {
  const std::string_view text = in.text;
  for (const std::string_view mark : {std::string_view("'s"), std::string_view("\xE2\x80\x99s")}) {
    if (!text.substr(i).starts_with(mark)) continue;
    const size_t end = i + mark.size();
    if (end == text.size() || !is_of_word(in, end)) return mark.size();
  }
  return 0;
}

std::vector<SourceWord> words_in(std::string_view bytes) {
  const text::Characters in = text::characters_of(bytes);
  const std::string_view text = in.text;
  std::vector<SourceWord> out;
  SourceWord word;
  bool sentence_begins = true;
  const auto end_word = [&] {
    if (word.text.empty()) return;
    word.text = text::lowercase(word.text);
    out.push_back(word);
    word = {};
  };
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const bool inside_number = (c == '.' || c == ',') && i > 0 && is_digit(text[i - 1]) &&
                               i + 1 < text.size() && is_digit(text[i + 1]);
    if (const size_t mark = word.text.empty() ? 0 : possessive(in, i); mark > 0) {
      end_word();
      i += mark;
    } else if (is_of_word(in, i) || inside_number) {
      if (word.text.empty()) {
        word.capital = in.kinds[i] == text::CharacterKind::kCapital;
        word.first = sentence_begins;
        sentence_begins = false;
      }
      word.number = word.number || is_digit(c);
      if (c != ',') word.text += c;
      ++i;
    } else {
      end_word();
      sentence_begins = sentence_begins || c == '.' || c == '!' || c == '?' || c == '\n';
      ++i;
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
