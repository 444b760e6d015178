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

std::vector<Subject::Scoring> InContext::items_for(const Subject& subject,
                                                   const Arrangement& arrangement) const {
  std::string examples;
  for (const uint32_t i : arrangement.examples) examples += shown(examples_[i]);
  std::vector<Subject::Scoring> out;  // question by question, label by label
  for (const LabelledText& question : questions_) {
    for (const std::string& label : labels_)
      out.push_back(continuation(subject, examples + asked(question), " " + label));
  }
  return out;
}

bool InContext::fits(const Subject& subject, int32_t shots) const {
  const auto limit = static_cast<size_t>(subject.trained_context());
  const std::vector<Arrangement> orders = arrangements(shots);
  // A tokenizer may make more tokens of the same examples in another order.
  return std::ranges::all_of(orders, [&](const Arrangement& order) {
    return std::ranges::all_of(items_for(subject, order),
                               [&](const auto& item) { return item.tokens.size() <= limit; });
  });
}

// Which questions were answered right.
std::vector<bool> InContext::ask(const Pass& pass, const Arrangement& arrangement,
                                 std::vector<Observation>& out) const {
  const Dims dims = {{"shots", std::to_string(pass.shots)}, {"order", arrangement.name}};
  const std::vector<Subject::Scoring> items = items_for(pass.subject, arrangement);
  const size_t each = labels_.size();
  std::vector<bool> right;
  const auto tokens_of = [&](size_t q) {
    return static_cast<int64_t>(items[q * each].tokens.size() * each);
  };
  constexpr int64_t kTokensARun = 65'536;  // most of them shared: the examples
  constexpr size_t kQuestionsARun = 32;
  for (const Run& run : in_runs(questions_.size(), tokens_of, kTokensARun, kQuestionsARun)) {
    const auto scores = pass.subject.score(
        std::span(items).subspan(run.begin * each, (run.end - run.begin) * each), pass.hooks.stop);
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

void InContext::run_shots(const Pass& pass, std::vector<Observation>& out) const {
  std::vector<std::vector<bool>> right;  // an order: the questions
  for (const Arrangement& arrangement : arrangements(pass.shots))
    right.push_back(ask(pass, arrangement, out));
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
  std::vector<int32_t> fitting;
  for (const int32_t shots : options_.shots) {
    if (fits(subject, shots)) {
      fitting.push_back(shots);
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
  for (const int32_t shots : fitting)
    total += questions * static_cast<int64_t>(arrangements(shots).size());
  for (const int32_t shots : fitting) run_shots({subject, hooks, shots, &done, total}, out);
}

}  // namespace dex::evaluate
