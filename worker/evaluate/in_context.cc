#include "worker/evaluate/in_context.h"

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>

#include "worker/evaluate/batches.h"
#include "worker/evaluate/continuation.h"
#include "worker/evaluate/random_stream.h"

namespace dex::evaluate {
namespace {

enum : int32_t { kAccuracy, kAccuracyOfOrder, kOrderSpread };

constexpr size_t kMostLabels = 64;
constexpr int32_t kOrdersOfMethod = 10;

std::string shown(const LabelledText& row) {
  return "Text: " + row.text + "\nLabel: " + row.label + "\n\n";
}

std::string asked(const LabelledText& row) {
  return "Text: " + row.text + "\nLabel:";
}

// How many tokens both begin with, at most `most`.
size_t same_beginning(const Subject::Scoring& a, const Subject::Scoring& b, size_t most) {
  const size_t end = std::min({most, a.tokens.size(), b.tokens.size()});
  size_t same = 0;
  while (same < end && a.tokens[same] == b.tokens[same]) ++same;
  return same;
}

}  // namespace

struct InContext::Pass {
  Subject& subject;
  const Hooks& hooks;
  int32_t shots = 0;
  int64_t* done = nullptr;  // questions asked of this subject so far
  int64_t total = 0;
};

InContext::InContext(Options options, std::vector<LabelledText> rows)
    : options_(std::move(options)) {
  for (const LabelledText& row : rows) labels_.push_back(row.label);
  std::ranges::sort(labels_);
  labels_.erase(std::ranges::unique(labels_).begin(), labels_.end());
  if (labels_.size() > kMostLabels) {
    throw std::runtime_error("the file has " + std::to_string(labels_.size()) +
                             " labels, at most " + std::to_string(kMostLabels) +
                             " are taken; is \"label\" the right column?");
  }
  std::ranges::sort(options_.shots);
  if (options_.shots.empty() || options_.shots[0] < 0)
    throw std::runtime_error("--shots must be numbers from 0 on, e.g. 0,4,16");
  if (options_.orders < 1)
    throw std::runtime_error("--n-orders must be at least 1, got " +
                             std::to_string(options_.orders));
  const auto most = static_cast<size_t>(options_.shots.back());
  if (rows.size() <= most) {
    throw std::runtime_error(std::to_string(most) + " examples and a question need " +
                             std::to_string(most + 1) + " rows, the file has " +
                             std::to_string(rows.size()) + "; ask for fewer with --shots");
  }
  const auto order =
      RandomStream(options_.seed, Draw::kShots).permutation(static_cast<uint32_t>(rows.size()));
  for (size_t i = 0; i < order.size(); ++i) {
    if (i < most) {
      examples_.push_back(std::move(rows[order[i]]));
    } else if (static_cast<int64_t>(questions_.size()) < options_.samples) {
      questions_.push_back(std::move(rows[order[i]]));
    }
  }
}

std::vector<Metric> InContext::metrics() const {
  return {{"accuracy", IntervalKind::kBootstrap, false, false, {{"shots"}}},
          {"accuracy_of_order", IntervalKind::kWilson, false, false, {{"shots", "order"}}},
          {"order_spread", IntervalKind::kBootstrap, true, false, {{"shots"}}}};
}

std::vector<InContext::Arrangement> InContext::arrangements(int32_t shots) const {
  std::vector<Arrangement> out;
  const auto count = static_cast<uint32_t>(shots);
  if (options_.order != Order::kByClass || count < 2) {
    // Fewer than two examples have one order.
    const int32_t orders = count < 2 ? 1 : options_.orders;
    for (int32_t o = 0; o < orders; ++o) {
      const uint64_t stream = (uint64_t{count} << 16) + static_cast<uint64_t>(o);
      out.push_back({"random " + std::to_string(o + 1),
                     RandomStream(options_.seed, Draw::kOrder, stream).permutation(count)});
    }
  }
  if (options_.order != Order::kRandom && count >= 2) {
    std::vector<uint32_t> sorted;
    for (uint32_t i = 0; i < count; ++i) sorted.push_back(i);
    const auto label = [&](uint32_t i) { return examples_[i].label; };
    std::ranges::stable_sort(sorted, {}, label);
    out.push_back({"by class", sorted});
    std::ranges::stable_sort(sorted, std::ranges::greater(), label);
    out.push_back({"by class, last first", sorted});
  }
  return out;
}

InContext::Round InContext::round_of(const Subject& subject, const Arrangement& arrangement) const {
  std::string examples;
  for (const uint32_t i : arrangement.examples) examples += shown(examples_[i]);
  std::vector<std::string> answers;
  for (const std::string& label : labels_) answers.push_back(" " + label);
  Round out{arrangement.name, {}};
  for (const LabelledText& question : questions_) {
    const auto items = continuations(subject, examples + asked(question), answers);
    size_t common = items.front().tokens.size();
    for (const Subject::Scoring& item : items) common = same_beginning(items.front(), item, common);
    Asked& kept = out.questions.emplace_back();
    const auto& first = items.front().tokens;
    const auto at = static_cast<std::ptrdiff_t>(common);
    kept.beginning.assign(first.begin(), first.begin() + at);
    for (const Subject::Scoring& item : items)
      kept.ends.push_back({{item.tokens.begin() + at, item.tokens.end()}, item.first});
  }
  return out;
}

std::vector<Subject::Scoring> InContext::Round::items(size_t begin, size_t end) const {
  std::vector<Subject::Scoring> out;
  for (size_t q = begin; q < end; ++q) {
    for (const Subject::Scoring& tail : questions[q].ends) {
      Subject::Scoring& item = out.emplace_back();
      item.tokens = questions[q].beginning;
      item.tokens.insert(item.tokens.end(), tail.tokens.begin(), tail.tokens.end());
      item.first = tail.first;
    }
  }
  return out;
}

std::optional<std::vector<InContext::Round>> InContext::fitting_rounds(const Subject& subject,
                                                                       int32_t shots) const {
  const auto limit = static_cast<size_t>(subject.trained_context());
  std::vector<Round> out;
  // A tokenizer may make more tokens of the same examples in another order.
  for (const Arrangement& order : arrangements(shots)) {
    out.push_back(round_of(subject, order));
    for (const Asked& question : out.back().questions) {
      for (const Subject::Scoring& tail : question.ends) {
        if (question.beginning.size() + tail.tokens.size() > limit) return std::nullopt;
      }
    }
  }
  return out;
}

// Which questions were answered right.
std::vector<bool> InContext::ask(const Pass& pass, const Round& round,
                                 std::vector<Observation>& out) const {
  const Dims dims = {{"shots", std::to_string(pass.shots)}, {"order", round.order}};
  const size_t each = labels_.size();
  std::vector<bool> right;
  const auto tokens_of = [&](size_t q) {
    const Asked& question = round.questions[q];
    return static_cast<int64_t>((question.beginning.size() + question.ends.front().tokens.size()) *
                                each);
  };
  constexpr int64_t kTokensARun = 65'536;  // most of them shared: the examples
  constexpr size_t kQuestionsARun = 32;
  for (const Run& run : in_runs(questions_.size(), tokens_of, kTokensARun, kQuestionsARun)) {
    const auto scores = pass.subject.score(round.items(run.begin, run.end), pass.hooks.stop);
    for (size_t q = run.begin; q < run.end; ++q) {
      std::vector<ChoiceScore> choices;
      Sample sample;
      for (size_t l = 0; l < each; ++l) {
        choices.push_back(choice_score(scores[(q - run.begin) * each + l], labels_[l]));
        sample.logprobs.push_back(choices.back().sum);
      }
      const std::string& said = labels_[best(choices, &ChoiceScore::sum)];
      right.push_back(said == questions_[q].label);
      const auto item = static_cast<int64_t>(q);
      const double score = right.back() ? 1 : 0;
      // Observations of one item add up: over the orders they make the mean.
      out.push_back({kAccuracy, item, {dims[0]}, score, 1});
      out.push_back({kAccuracyOfOrder, item, dims, score, 1});
      if (!pass.hooks.sample) continue;
      sample.task = name();
      sample.subject = pass.subject.label();
      sample.item = item;
      sample.line = questions_[q].line;
      sample.dims = dims;
      sample.prompt = asked(questions_[q]);
      sample.expected = questions_[q].label;
      sample.output = said;
      sample.score = score;
      pass.hooks.sample(sample);
    }
    *pass.done += static_cast<int64_t>(run.end - run.begin);
    pass.hooks.report(pass.subject, *pass.done, pass.total);
  }
  return right;
}

void InContext::run_shots(const Pass& pass, const std::vector<Round>& rounds,
                          std::vector<Observation>& out) const {
  std::vector<std::vector<bool>> right;  // an order: the questions
  for (const Round& round : rounds) right.push_back(ask(pass, round, out));
  if (right.size() < 2) return;
  const auto correct = [](const std::vector<bool>& order) {
    return std::ranges::count(order, true);
  };
  const auto best = std::ranges::max_element(right, {}, correct);
  const auto worst = std::ranges::min_element(right, {}, correct);
  for (size_t q = 0; q < questions_.size(); ++q) {
    const double gap = ((*best)[q] ? 1 : 0) - ((*worst)[q] ? 1 : 0);
    out.push_back(
        {kOrderSpread, static_cast<int64_t>(q), {{"shots", std::to_string(pass.shots)}}, gap, 1});
  }
}

void InContext::run(Subject& subject, const Hooks& hooks, std::vector<Observation>& out) {
  std::vector<std::pair<int32_t, std::vector<Round>>> fitting;  // by shots
  for (const int32_t shots : options_.shots) {
    if (auto rounds = fitting_rounds(subject, shots)) {
      fitting.emplace_back(shots, std::move(*rounds));
    } else {
      hooks.say(std::to_string(shots) + " examples do not fit the model's context of " +
                std::to_string(subject.trained_context()) + " tokens and are left out");
    }
  }
  if (fitting.empty()) {
    throw std::runtime_error("not even " + std::to_string(options_.shots[0]) +
                             " examples and a question fit the model's context of " +
                             std::to_string(subject.trained_context()) +
                             " tokens; ask for fewer with --shots, or shorten the texts");
  }
  if (options_.order != Order::kByClass && options_.orders < kOrdersOfMethod)
    hooks.say(std::to_string(options_.orders) + " random orders; a firm spread needs " +
              std::to_string(kOrdersOfMethod));
  int64_t done = 0, total = 0;
  const auto questions = static_cast<int64_t>(questions_.size());
  for (const auto& [shots, rounds] : fitting)
    total += questions * static_cast<int64_t>(rounds.size());
  for (auto& [shots, rounds] : fitting) {
    run_shots({subject, hooks, shots, &done, total}, rounds, out);
    rounds.clear();
  }
}

}  // namespace dex::evaluate
