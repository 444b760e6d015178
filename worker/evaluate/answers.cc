#include "worker/evaluate/answers.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <utility>

#include "worker/evaluate/answer_match.h"
#include "worker/evaluate/batches.h"
#include "worker/evaluate/random_stream.h"
#include "worker/evaluate/unseen_strings.h"

namespace dex::evaluate {
namespace {

// A row of the comparison with given answers; in the order of Answers::Match behind kAll.
struct MatchRow {
  const char* metric;
  IntervalKind interval;
  double AnswerMatch::*figure;
};
constexpr MatchRow kMatchRows[] = {{"exact", IntervalKind::kWilson, &AnswerMatch::exact},
                                   {"contains", IntervalKind::kWilson, &AnswerMatch::contains},
                                   {"f1", IntervalKind::kBootstrap, &AnswerMatch::f1}};

std::span<const MatchRow> rows_of(Answers::Match match) {
  const std::span<const MatchRow> all = kMatchRows;
  return match == Answers::Match::kAll ? all : all.subspan(static_cast<size_t>(match) - 1, 1);
}

// The chat as people read it.
std::string shown(const AnswerQuestion& question) {
  std::string out = question.prompt;
  for (const text::Message& message : question.messages)
    out += (out.empty() ? "" : "\n") + message.role + ": " + message.content;
  return out;
}

}  // namespace

Answers::Answers(Options options, std::vector<AnswerQuestion> questions)
    : options_(options), questions_(std::move(questions)) {
  if (options_.samples <= 0 || options_.samples >= static_cast<int64_t>(questions_.size())) return;
  std::vector<uint32_t> order = RandomStream(options_.seed, Draw::kQueries)
                                    .permutation(static_cast<uint32_t>(questions_.size()));
  order.resize(static_cast<size_t>(options_.samples));
  std::ranges::sort(order);
  std::vector<AnswerQuestion> drawn;
  for (const uint32_t i : order) drawn.push_back(std::move(questions_[i]));
  questions_ = std::move(drawn);
}

std::vector<Metric> Answers::metrics() const {
  std::vector<Metric> out;
  for (const MatchRow& row : rows_of(options_.match)) out.push_back({row.metric, row.interval});
  out.push_back({"unseen_strings_per_100_words", IntervalKind::kBootstrap, true});
  return out;
}

double Answers::observe(const AnswerQuestion& question, const std::string& output, int64_t item,
                        std::vector<Observation>& out) const {
  const auto rows = rows_of(options_.match);
  double score = 0;
  if (!question.source.empty()) {
    const UnseenStrings unseen = unseen_strings(output, question.source);
    const auto words = static_cast<double>(unseen.words);
    const auto count = static_cast<double>(unseen.unseen);
    out.push_back({static_cast<int32_t>(rows.size()), item, {}, 100 * count, words});
    if (words > 0) score = 1 - count / words;
  }
  if (question.answers.empty()) return score;
  const AnswerMatch match = match_answer(output, question.answers);
  for (size_t m = 0; m < rows.size(); ++m)
    out.push_back({static_cast<int32_t>(m), item, {}, match.*rows[m].figure, 1});
  return options_.match == Match::kAll ? match.f1 : match.*rows[0].figure;
}

Subject::Generation Answers::item_for(const Subject& subject,
                                      const AnswerQuestion& question) const {
  Subject::Generation out{{}, options_.max_tokens, {}};
  const std::vector<text::Message> message = {{.role = "user", .content = question.prompt}};
  if (!question.messages.empty()) {
    out.prompt = subject.encode_chat(question.messages);
  } else if (options_.chat) {
    out.prompt = subject.encode_chat(message);
  } else {
    out.prompt = subject.encode(question.prompt);
    if (question.one_line) out.stop = {"\n"};
  }
  const size_t needed = out.prompt.size() + static_cast<size_t>(options_.max_tokens);
  if (needed > static_cast<size_t>(subject.trained_context())) {
    throw std::runtime_error(
        "line " + std::to_string(question.line) + ": the prompt has " +
        std::to_string(out.prompt.size()) + " tokens and its answer up to " +
        std::to_string(options_.max_tokens) + ", the model takes " +
        std::to_string(subject.trained_context()) +
        "; shorten the line's context, or ask for shorter answers with --max-tokens");
  }
  return out;
}

void Answers::run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) {
  std::vector<Subject::Generation> items;
  for (const AnswerQuestion& question : questions_) items.push_back(item_for(subject, question));
  const auto tokens_of = [&](size_t i) { return static_cast<int64_t>(items[i].prompt.size()); };
  constexpr int64_t kTokensARun = 16'384;
  constexpr size_t kPromptsARun = 32;
  for (const Run& run : in_runs(items.size(), tokens_of, kTokensARun, kPromptsARun)) {
    const auto said =
        subject.generate(std::span(items).subspan(run.begin, run.end - run.begin), hooks.stop);
    for (size_t i = run.begin; i < run.end; ++i) {
      const AnswerQuestion& question = questions_[i];
      const std::string& output = said[i - run.begin].text;
      const auto item = static_cast<int64_t>(i);
      const double score = observe(question, output, item, out);
      if (!hooks.sample) continue;
      hooks.sample({.task = name(),
                    .subject = subject.label(),
                    .item = item,
                    .line = question.line,
                    .prompt = shown(question),
                    .expected = question.answers.empty() ? "" : question.answers[0],
                    .output = output,
                    .score = score});
    }
    hooks.report(subject, static_cast<int64_t>(run.end), static_cast<int64_t>(items.size()));
  }
}

}  // namespace dex::evaluate
