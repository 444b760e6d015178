#include "worker/evaluate/answer_match.h"

#include <algorithm>
#include <map>
#include <vector>

#include "services/text/characters.h"

namespace dex::evaluate {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  const text::Characters lower = text::characters_of(text::lowercase(text));
  std::vector<std::string> out(1);
  for (size_t i = 0; i < lower.text.size(); ++i) {
    if (lower.kinds[i] == text::CharacterKind::kPunctuation) continue;
    if (lower.kinds[i] == text::CharacterKind::kBlank) {
      if (!out.back().empty()) out.emplace_back();
    } else {
      out.back() += lower.text[i];
    }
  }
  std::erase_if(out, [](const std::string& word) {
    return word.empty() || word == "a" || word == "an" || word == "the";
  });
  return out;
}

// 2·P·R / (P + R) over the words that both have, as often as both have them. Two answers of no
// words are equal.
double f1_of(const std::vector<std::string>& said, const std::vector<std::string>& gold) {
  if (said.empty() || gold.empty()) return said.empty() && gold.empty() ? 1 : 0;
  std::map<std::string, int> left;
  for (const std::string& word : gold) ++left[word];
  int common = 0;
  for (const std::string& word : said) {
    if (left[word]-- > 0) ++common;
  }
  return 2.0 * common / static_cast<double>(said.size() + gold.size());
}

}  // namespace

std::string normalised(std::string_view text) {
  std::string out;
  for (const std::string& word : words_of(text)) out += (out.empty() ? "" : " ") + word;
  return out;
}

AnswerMatch match_answer(std::string_view output, std::span<const std::string> answers) {
  const std::vector<std::string> said = words_of(output);
  const std::string padded = " " + normalised(output) + " ";
  AnswerMatch out;
  for (const std::string& answer : answers) {
    const std::string gold = normalised(answer);
    if (padded == " " + gold + " ") out.exact = 1;
    // An answer of nothing but articles and punctuation would be contained in everything.
    if (!gold.empty() && padded.find(" " + gold + " ") != std::string::npos) out.contains = 1;
    out.f1 = std::max(out.f1, f1_of(said, words_of(answer)));
  }
  return out;
}

}  // namespace dex::evaluate
