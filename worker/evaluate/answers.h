#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/evaluate/prompt_file.h"
#include "worker/evaluate/task.h"

namespace dex::evaluate {

// Answers checked against given ones (method.md §9.6): greedy, `exact`, `contains` and `f1` of
// answer_match.h. A question's answer ends with its line; a prompt's with the end of sequence or
// `max_tokens`. With `chat`, prompts are users' messages of the model's chat template.
class Answers final : public Task {
 public:
  struct Options {
    int32_t max_tokens = 64;
    int64_t samples = 0;  // a seeded draw of so many; 0: all
    uint64_t seed = 0;
    bool chat = false;
  };
  Answers(Options options, std::vector<AnswerQuestion> questions);

  [[nodiscard]] std::string name() const override { return "answers"; }
  [[nodiscard]] std::vector<Metric> metrics() const override;
  void run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) override;

 private:
  [[nodiscard]] Subject::Generation item_for(const Subject& subject,
                                             const AnswerQuestion& question) const;

  Options options_;
  std::vector<AnswerQuestion> questions_;
};

}  // namespace dex::evaluate
