#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/evaluate/choice_file.h"
#include "worker/evaluate/task.h"

namespace dex::evaluate {

// Multiple choice by likelihood (method.md §9.3). The answer is the likeliest choice: `acc` by the
// sum of its log-probabilities, `acc_norm` by the sum divided by the choice's bytes,
// `acc_per_token` by the sum divided by its tokens. Rows overall, and by what the file says of its
// questions.
//
// The prompt is "CONTEXT\nQuestion: QUESTION\nAnswer:" and the choice " CHOICE". With `letters` the
// choices are listed as "A. …" and the letters are scored, as MMLU is mostly run. `shots` examples
// with their answers come first, joined by blank lines; they are a seeded draw from `examples`, or
// from the questions themselves, which are then not asked.
class MultipleChoice final : public Task {
 public:
  enum class Score { kAll, kSum, kPerByte, kPerToken };
  struct Options {
    int32_t shots = 0;
    bool letters = false;
    int64_t samples = 0;  // a seeded draw of so many questions; 0: all
    uint64_t seed = 0;
    Score score = Score::kAll;  // only the row of this one
  };
  // Throws std::runtime_error when there are too few questions for the shots.
  MultipleChoice(Options options, std::vector<ChoiceQuestion> questions,
                 std::vector<ChoiceQuestion> examples = {});

  [[nodiscard]] std::string name() const override { return "multiple_choice"; }
  [[nodiscard]] std::vector<Metric> metrics() const override;
  void run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) override;

 private:
  [[nodiscard]] std::string prompt_of(const ChoiceQuestion& question) const;
  [[nodiscard]] std::string choice_of(const ChoiceQuestion& question, size_t index) const;
  // A question: what to score for each of its choices.
  [[nodiscard]] std::vector<std::vector<Subject::Scoring>> items_for(const Subject& subject) const;
  // `scores`: one list a choice of question `item`.
  void observe(const Subject& subject, const Hooks& hooks, size_t item,
               std::span<const std::vector<float>> scores, std::vector<Observation>& out) const;

  Options options_;
  std::vector<ChoiceQuestion> questions_;
  std::string shown_;  // the examples, each with its answer
  std::string note_;   // which examples these are
};

}  // namespace dex::evaluate
