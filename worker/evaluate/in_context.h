#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/evaluate/prompt_file.h"
#include "worker/evaluate/task.h"

namespace dex::evaluate {

// Classification from labelled examples in the prompt, and how much their order matters (method.md
// §9.4). The prompt is "Text: …\nLabel: …\n\n" for each example, then the question without its
// label; the answer is the likeliest of the file's labels. For each number of shots the same
// examples stand in `orders` random orders and, with kByClass, sorted by class up and down; every
// question is asked in every order. Numbers of shots that do not fit the context in one of their
// orders are left out with a note.
//
// Rows: `accuracy` by shots, the mean over orders (bootstrap over questions, because one question
// in several orders is not several questions); `accuracy_of_order` by shots and order (Wilson);
// `order_spread` by shots: best minus worst order, these two being picked on the same questions.
class InContext final : public Task {
 public:
  enum class Order { kRandom, kByClass, kBoth };
  struct Options {
    std::vector<int32_t> shots = {0, 4, 16, 64};
    int32_t orders = 3;
    Order order = Order::kRandom;
    int64_t samples = 200;  // questions, a seeded draw
    uint64_t seed = 0;
  };
  // Throws std::runtime_error when the file has too few rows for examples and one question, or more
  // labels than can be told apart (64).
  InContext(Options options, std::vector<LabelledText> rows);

  [[nodiscard]] std::string name() const override { return "icl"; }
  [[nodiscard]] std::vector<Metric> metrics() const override;
  void run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) override;

 private:
  struct Arrangement {
    std::string name;                // "random 1", "by class"
    std::vector<uint32_t> examples;  // into examples_
  };
  // What is asked about one question: it and every label behind an arrangement's examples, as
  // tokens. Kept from the check whether it fits until it is scored, so what the labels' prompts
  // have in common at their beginning, the examples and the question, is there once.
  struct Asked {
    std::vector<int32_t> beginning;
    std::vector<Subject::Scoring> ends;  // a label: the tokens behind; `first` is of the whole
  };
  // One order of the examples, and what is asked in it: question by question.
  struct Round {
    std::string order;
    std::vector<Asked> questions;
    // Of the questions [begin, end), label by label.
    [[nodiscard]] std::vector<Subject::Scoring> items(size_t begin, size_t end) const;
  };
  struct Pass;  // one number of shots on one subject
  [[nodiscard]] std::vector<Arrangement> arrangements(int32_t shots) const;
  [[nodiscard]] Round round_of(const Subject& subject, const Arrangement& arrangement) const;
  // Every order of so many shots; nothing where one of them does not fit the subject's context.
  [[nodiscard]] std::optional<std::vector<Round>> fitting_rounds(const Subject& subject,
                                                                 int32_t shots) const;
  std::vector<bool> ask(const Pass& pass, const Round& round, std::vector<Observation>& out) const;
  void run_shots(const Pass& pass, const std::vector<Round>& rounds,
                 std::vector<Observation>& out) const;

  Options options_;
  std::vector<std::string> labels_;     // sorted
  std::vector<LabelledText> examples_;  // as many as the most shots
  std::vector<LabelledText> questions_;
};

}  // namespace dex::evaluate
