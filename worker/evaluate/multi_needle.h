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
// Rows for each length × depth, for each length, and overall. With several numbers of needles each
// has all of these, under a dim `needles`, and the figures that a run of it alone would have: a
// mean over different tasks would say nothing.
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
    // Several grids in one run: these in place of `needles`. Queries: one for each of them, one for
    // all, or none, which is `queries` or as many as there are needles.
    std::vector<int32_t> needle_counts, query_counts;
  };
  struct Setting {
    int32_t needles = 0, queries = 0;  // N and R of method.md §9.2
  };
  // The grids of a run, at least one. Throws std::runtime_error for numbers that can't be.
  static std::vector<Setting> settings_of(const Options& options);
  // "6 needles, 2 asked for"; of several "1 needle, 1 asked for; 4 needles, 2 asked for".
  static std::string settings_text(const Options& options);

  // Throws std::runtime_error for options that can't be, or a filler without a sentence.
  MultiNeedle(Options options, const TextFile& filler);

  [[nodiscard]] std::string name() const override { return "multi_needle"; }
  [[nodiscard]] std::vector<Metric> metrics() const override;
  void run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) override;

 private:
  struct Cell {
    Setting setting;
    int32_t length = 0, depth = 0;
  };
  struct Prompt;
  struct Filler;
  [[nodiscard]] std::vector<int32_t> lengths_for(const Subject& subject) const;
  [[nodiscard]] static int32_t answer_tokens(const Setting& setting) {
    return 16 * setting.queries + 8;
  }
  // Sets the prompt's text and tokens.
  void ask(const Subject& subject, const std::string& haystack, const NeedleQuestion& question,
           Prompt& prompt) const;
  // Sets the parts of a prompt whose tokens are there.
  static void find_parts(const Subject& subject, const std::string& haystack, Prompt& prompt);
  // `draw`: of the needles, equal for the same sample of every setting.
  [[nodiscard]] Prompt prompt_for(const Subject& subject, Filler& filler, const Cell& cell,
                                  uint64_t draw) const;
  // One a sample, setting by setting; a sample's item number is its place here.
  [[nodiscard]] std::vector<Cell> cells_for(const std::vector<int32_t>& lengths) const;
  void observe(const Subject& subject, const Hooks& hooks, const Prompt& prompt,
               const Subject::Generated& answer, int64_t item, std::vector<Observation>& out) const;

  Options options_;
  std::vector<Setting> settings_;
  std::vector<std::string> sentences_;
};

}  // namespace dex::evaluate
