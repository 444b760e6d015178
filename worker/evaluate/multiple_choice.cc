#include "worker/evaluate/multiple_choice.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "worker/evaluate/batches.h"
#include "worker/evaluate/continuation.h"
#include "worker/evaluate/random_stream.h"

namespace dex::evaluate {
namespace {

// A row, and what its answer is chosen by; in the order of MultipleChoice::Score behind kAll.
struct ChoiceRow {
  const char* metric;
  double ChoiceScore::*scale;
};
constexpr ChoiceRow kChoiceRows[] = {{"acc", &ChoiceScore::sum},
                                     {"acc_norm", &ChoiceScore::per_byte},
                                     {"acc_per_token", &ChoiceScore::per_token}};

std::span<const ChoiceRow> rows_of(MultipleChoice::Score score) {
  const std::span<const ChoiceRow> all = kChoiceRows;
  return score == MultipleChoice::Score::kAll ? all
                                              : all.subspan(static_cast<size_t>(score) - 1, 1);
}

// Moves a seeded draw of `count` rows out of `rows`, in the order drawn.
std::vector<ChoiceQuestion> draw(std::vector<ChoiceQuestion>& rows, size_t count, uint64_t seed,
                                 Draw use) {
  const std::vector<uint32_t> order =
      RandomStream(seed, use).permutation(static_cast<uint32_t>(rows.size()));
  std::vector<ChoiceQuestion> out, kept;
  std::vector<bool> drawn(rows.size(), false);
  for (size_t i = 0; i < count; ++i) {
    drawn[order[i]] = true;
    out.push_back(std::move(rows[order[i]]));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!drawn[i]) kept.push_back(std::move(rows[i]));
  }
  rows = std::move(kept);
  return out;
}

}  // namespace

MultipleChoice::MultipleChoice(Options options, std::vector<ChoiceQuestion> questions,
                               std::vector<ChoiceQuestion> examples)
    : options_(options), questions_(std::move(questions)) {
  const bool own = examples.empty();
  std::vector<ChoiceQuestion>& from = own ? questions_ : examples;
  const auto shots = static_cast<size_t>(options_.shots);
  if (from.size() < shots + (own ? 1 : 0)) {
    throw std::runtime_error(std::to_string(shots) + " examples are asked for, and the file has " +
                             std::to_string(from.size()) +
                             " questions; ask for fewer with --n-shot, or give a larger file with "
                             "--shots-file");
  }
  for (const ChoiceQuestion& example : draw(from, shots, options_.seed, Draw::kShots)) {
    shown_ += prompt_of(example) + choice_of(example, example.answer) + "\n\n";
    note_ += (note_.empty() ? "" : ", ") + std::to_string(example.line);
  }
  if (!note_.empty()) {
    note_ = std::string("examples shown: lines ") + note_ + " of " +
            (own ? "the file; they are not asked" : "the examples' file");
  }
  if (options_.samples > 0 && options_.samples < static_cast<int64_t>(questions_.size())) {
    questions_ =
        draw(questions_, static_cast<size_t>(options_.samples), options_.seed, Draw::kQueries);
  }
}

std::vector<Metric> MultipleChoice::metrics() const {
  // One grouping for each thing that the file says of its questions.
  std::vector<std::vector<std::string>> groupings = {{}};
  for (const ChoiceQuestion& question : questions_) {
    for (const auto& [key, value] : question.dims) {
      const std::vector<std::string> grouping = {key};
      if (std::ranges::find(groupings, grouping) == groupings.end()) groupings.push_back(grouping);
    }
  }
  std::vector<Metric> out;
  for (const ChoiceRow& row : rows_of(options_.score))
    out.push_back({row.metric, IntervalKind::kWilson, false, false, groupings});
  return out;
}

std::string MultipleChoice::prompt_of(const ChoiceQuestion& question) const {
  std::string out = question.context.empty() ? "" : question.context + "\n";
  out += "Question: " + question.question + "\n";
  if (options_.letters) {
    for (size_t i = 0; i < question.choices.size(); ++i)
      out += std::string(1, static_cast<char>('A' + i)) + ". " + question.choices[i] + "\n";
  }
  return out + "Answer:";
}

std::string MultipleChoice::choice_of(const ChoiceQuestion& question, size_t index) const {
  return " " + (options_.letters ? std::string(1, static_cast<char>('A' + index))
                                 : question.choices[index]);
}

std::vector<std::vector<Subject::Scoring>> MultipleChoice::items_for(const Subject& subject) const {
  std::vector<std::vector<Subject::Scoring>> out;
  for (const ChoiceQuestion& question : questions_) {
    const std::string prompt = shown_ + prompt_of(question);
    auto& choices = out.emplace_back();
    for (size_t i = 0; i < question.choices.size(); ++i) {
      choices.push_back(continuation(subject, prompt, choice_of(question, i)));
      const size_t size = choices.back().tokens.size();
      if (size > static_cast<size_t>(subject.trained_context())) {
        throw std::runtime_error("line " + std::to_string(question.line) + ": the prompt has " +
                                 std::to_string(size) + " tokens, the model takes " +
                                 std::to_string(subject.trained_context()) +
                                 "; show fewer examples with --n-shot, or take the line out");
      }
    }
  }
  return out;
}

void MultipleChoice::observe(const Subject& subject, const Hooks& hooks, size_t item,
                             std::span<const std::vector<float>> scores,
                             std::vector<Observation>& out) const {
  const ChoiceQuestion& question = questions_[item];
  std::vector<ChoiceScore> choices;
  for (size_t i = 0; i < question.choices.size(); ++i) {
    // The blank in front of a choice is the prompt's, not one of its bytes.
    choices.push_back(choice_score(scores[i], choice_of(question, i).substr(1)));
  }
  const auto rows = rows_of(options_.score);
  for (size_t m = 0; m < rows.size(); ++m) {
    const bool right = best(choices, rows[m].scale) == question.answer;
    out.push_back(
        {static_cast<int32_t>(m), static_cast<int64_t>(item), question.dims, right ? 1.0 : 0.0, 1});
  }
  if (!hooks.sample) return;
  const bool one = options_.score != Score::kAll;
  const size_t said = best(choices, one ? rows[0].scale : &ChoiceScore::per_byte);
  Sample sample{.task = name(),
                .subject = subject.label(),
                .item = static_cast<int64_t>(item),
                .line = question.line,
                .dims = question.dims,
                .prompt = prompt_of(question),
                .expected = question.choices[question.answer],
                .output = question.choices[said],
                .score = said == question.answer ? 1.0 : 0.0};
  for (const ChoiceScore& choice : choices) sample.logprobs.push_back(choice.sum);
  hooks.sample(sample);
}

void MultipleChoice::run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) {
  if (!note_.empty()) hooks.say(note_);
  const auto items = items_for(subject);  // a question: one for each choice
  const auto tokens_of = [&](size_t i) {
    int64_t sum = 0;
    for (const auto& item : items[i]) sum += static_cast<int64_t>(item.tokens.size());
    return sum;
  };
  constexpr int64_t kTokensARun = 16'384;
  constexpr size_t kQuestionsARun = 64;
  for (const Run& run : in_runs(items.size(), tokens_of, kTokensARun, kQuestionsARun)) {
    std::vector<Subject::Scoring> together;
    for (size_t q = run.begin; q < run.end; ++q)
      together.insert(together.end(), items[q].begin(), items[q].end());
    const auto scores = subject.score(together, hooks.stop);
    size_t next = 0;
    for (size_t q = run.begin; q < run.end; ++q) {
      observe(subject, hooks, q, std::span(scores).subspan(next, items[q].size()), out);
      next += items[q].size();
    }
    hooks.report(subject, static_cast<int64_t>(run.end), static_cast<int64_t>(items.size()));
  }
}

}  // namespace dex::evaluate
