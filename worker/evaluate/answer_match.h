#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dex::evaluate {

// How an answer is compared with those that count as right (method.md §9.6; the rules of SQuAD,
// arXiv 1606.05250): strings, not meaning.

// Lower case, punctuation away (ASCII's and Unicode's, as MLQA has it for languages beside
// English), the articles a, an and the away, blanks one space.
std::string normalised(std::string_view text);

struct AnswerMatch {
  double exact = 0;     // 1: equals one of the answers after normalising
  double contains = 0;  // 1: holds one of them, as whole words
  double f1 = 0;        // of words in common with the answer that it fits best
};
AnswerMatch match_answer(std::string_view output, std::span<const std::string> answers);

}  // namespace dex::evaluate
