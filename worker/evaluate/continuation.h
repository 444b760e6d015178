#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker/evaluate/subject.h"

namespace dex::evaluate {

// What to score for log P(choice | prompt) (method.md §9.3): blanks at the prompt's end belong to
// the choice, since tokenizers of words join a blank to what follows it; prompt and choice are
// tokenised together and cut at the prompt's own number of tokens. At least one token is scored.
Subject::Scoring continuation(const Subject& subject, std::string_view prompt,
                              std::string_view choice);
// The same for several choices behind one prompt, whose own tokens are counted once.
std::vector<Subject::Scoring> continuations(const Subject& subject, std::string_view prompt,
                                            std::span<const std::string> choices);

// The likeliness of one choice, on three scales.
struct ChoiceScore {
  double sum = 0;        // log P(choice | prompt)
  double per_byte = 0;   // divided by the choice's UTF-8 bytes
  double per_token = 0;  // divided by its tokens
};
ChoiceScore choice_score(std::span<const float> logprobs, std::string_view choice);

// Which of `scores` is the largest on a scale; the first of equals.
size_t best(std::span<const ChoiceScore> scores, double ChoiceScore::*scale);

}  // namespace dex::evaluate
