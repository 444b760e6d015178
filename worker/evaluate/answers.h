#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/evaluate/prompt_file.h"
#include "worker/evaluate/task.h"

namespace dex::evaluate {

// Answers checked against given ones (method.md §9.6): greedy, `exact`, `contains` and `f1` of
// answer_match.h. A question's answer ends with its line; a prompt's with the end of sequence or
// `max_tokens`. With `chat`, prompts are users' messages of the model's chat template. Where a row
// says what its answer must keep to, `unseen_strings_per_100_words` of unseen_strings.h too.
class Answers final : public Task {
 public:
  enum class Match { kAll, kExact, kContains, kF1 };
  struct Options {
    int32_t max_tokens = 64;
    int64_t samples = 0;  // a seeded draw of so many; 0: all
    uint64_t seed = 0;
    bool chat = false;
    Match match = Match::kAll;  // of the comparisons with given answers only the row of this one
  };
  Answers(Options options, std::vector<AnswerQuestion> questions);

  [[nodiscard]] std::string name() const override { return "answers"; }
  [[nodiscard]] std::vector<Metric> metrics() const override;
  void run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) override;

 private:
  // Appends what there is to see in an answer; returns a sample's score of it, 0–1: `match` or f1,
  // or without answers the share of words that are not unseen strings.
  double observe(const AnswerQuestion& question, const std::string& output, int64_t item,
                 std::vector<Observation>& out) const;
  [[nodiscard]] Subject::Generation item_for(const Subject& subject,
                                             const AnswerQuestion& question) const;

  Options options_;
  std::vector<AnswerQuestion> questions_;
};

}  // namespace dex::evaluate
