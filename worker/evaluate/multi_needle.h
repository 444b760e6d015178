#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/evaluate/documents.h"
#include "worker/evaluate/haystack.h"
#include "worker/evaluate/task.h"

namespace dex::evaluate {

// Multi-needle retrieval (method.md §9.2): `needles` sentences "The magic number of CITY is
// NUMBER." in filler text; the question asks for `queries` of them, the first at the cell's depth,
// the others anywhere. The answer is greedy. `accuracy` is the share of asked numbers that stand in
// it as whole strings of digits (its Wilson interval has prompts as its samples, not
// numbers: those of one answer share its fate), `all` the share of answers that hold all of them.
// Rows for each length × depth, for each length, and overall.
//
// A length counts everything: filler, needles, question and the room for the answer. Filler begins
// at a random sentence, is cut at a sentence's end and starts over where the file is too short. The
// prompt is text to continue ("…\n\nQuestion: …\nAnswer: The magic number of Lima is"), or with
// `chat` a user's message.
//
// In the same run: what the attention of the prompt's last token, which predicts the answer's
// first, falls on (prompt_parts.h). attention_answer is the signal; attention_noise is filler and
// other needles together; attention_other_needles, attention_filler, attention_first_token and
// attention_question are the rest of what the signal leaves. Each is a mean over layers and heads,
// then over samples. Rows of signal and noise for each length × depth too.
class MultiNeedle final : public Task {
 public:
  struct Options {
    std::vector<int32_t> lengths;  // tokens; empty: powers of two from 1024 to the model's limit
    std::vector<int32_t> depths_percent = {0, 25, 50, 75, 100};
    int32_t needles = 6;
    int32_t queries = 2;
    int32_t samples_per_cell = 20;
    uint64_t seed = 0;
    bool chat = false;
    bool allow_extrapolation = false;
  };
  // Throws std::runtime_error for options that can't be, or a filler without a sentence.
  MultiNeedle(Options options, const TextFile& filler);

  [[nodiscard]] std::string name() const override { return "multi_needle"; }
  [[nodiscard]] std::vector<Metric> metrics() const override;
  void run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) override;

 private:
  struct Cell {
    int32_t length = 0, depth = 0;
  };
  struct Prompt;
  struct Filler;
  [[nodiscard]] std::vector<int32_t> lengths_for(const Subject& subject) const;
  [[nodiscard]] int32_t answer_tokens() const { return 16 * options_.queries + 8; }
  // Sets the prompt's text and tokens.
  void ask(const Subject& subject, const std::string& haystack, const NeedleQuestion& question,
           Prompt& prompt) const;
  // Sets the parts of a prompt whose tokens are there.
  static void find_parts(const Subject& subject, const std::string& haystack, Prompt& prompt);
  [[nodiscard]] Prompt prompt_for(const Subject& subject, Filler& filler, int32_t length,
                                  int32_t depth, uint64_t item) const;
  // One a sample; a sample's item number is its place here.
  [[nodiscard]] std::vector<Cell> cells_for(const std::vector<int32_t>& lengths) const;
  void observe(const Subject& subject, const Hooks& hooks, const Prompt& prompt,
               const Subject::Generated& answer, int64_t item, std::vector<Observation>& out) const;

  Options options_;
  std::vector<std::string> sentences_;
};

}  // namespace dex::evaluate
