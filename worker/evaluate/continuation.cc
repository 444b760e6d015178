#include "worker/evaluate/continuation.h"

#include <algorithm>
#include <utility>

namespace dex::evaluate {

Subject::Scoring continuation(const Subject& subject, std::string_view prompt,
                              std::string_view choice) {
  const std::string one(choice);
  return std::move(continuations(subject, prompt, std::span(&one, 1)).front());
}

std::vector<Subject::Scoring> continuations(const Subject& subject, std::string_view prompt,
                                            std::span<const std::string> choices) {
  const size_t last = prompt.find_last_not_of(" \t\r\n");
  const size_t cut = last == std::string_view::npos ? 0 : last + 1;
  const auto before = static_cast<int32_t>(subject.encode(prompt.substr(0, cut)).size());
  std::vector<Subject::Scoring> out;
  for (const std::string& choice : choices) {
    Subject::Scoring& item = out.emplace_back();
    item.tokens = subject.encode(std::string(prompt) + choice);
    // A tokenizer may join the prompt's end and the choice into one token: that one is scored then.
    const auto size = static_cast<int32_t>(item.tokens.size());
    item.first = std::max(1, std::min(before, size - 1));
  }
  return out;
}

ChoiceScore choice_score(std::span<const float> logprobs, std::string_view choice) {
  ChoiceScore out;
  for (const float logprob : logprobs) out.sum += logprob;
  out.per_byte = out.sum / static_cast<double>(std::max<size_t>(1, choice.size()));
  out.per_token = out.sum / static_cast<double>(std::max<size_t>(1, logprobs.size()));
  return out;
}

size_t best(std::span<const ChoiceScore> scores, double ChoiceScore::*scale) {
  size_t out = 0;
  for (size_t i = 1; i < scores.size(); ++i) {
    if (scores[i].*scale > scores[out].*scale) out = i;
  }
  return out;
}

}  // namespace dex::evaluate
