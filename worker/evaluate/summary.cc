#include "worker/evaluate/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace dex::evaluate {
namespace {

struct Number {
  double value = 0, weight = 0;
};
// Items of one group of one subject. Several observations of an item add up: they share its fate in
// a resample.
using Items = std::map<int64_t, Number>;
using Units = std::vector<Number>;

Units units_of(const Items& items) {
  Units out;
  for (const auto& [item, number] : items) out.push_back(number);
  return out;
}

double ratio(const Number& sum, const Metric& metric) {
  const double value = sum.weight > 0 ? sum.value / sum.weight : 0;
  return metric.exponential ? std::exp(value) : value;
}

double of_all(const Units& units, const Metric& metric) {
  Number sum;
  for (const Number& unit : units) sum = {sum.value + unit.value, sum.weight + unit.weight};
  return ratio(sum, metric);
}

double of_drawn(const Units& units, std::span<const uint32_t> drawn, const Metric& metric) {
  Number sum;
  for (const uint32_t i : drawn) sum = {sum.value + units[i].value, sum.weight + units[i].weight};
  return ratio(sum, metric);
}

BootstrapOptions bootstrap_options(const EvaluationOptions& options) {
  return {.confidence = options.confidence, .seed = options.seed};
}

// Wilson's interval with items as the trials. An item that counts several times (the numbers asked
// for by one prompt) is one sample: its parts may all share their fate, and taken as independent
// they would make the interval too narrow by up to √weight. So n is Kish's effective number of
// items, (Σw)²/Σw² (Kish 1965, §8.2), the number of items where all weigh the same. As a value lies
// between 0 and its weight, items vary no more than right-or-wrong ones do: the interval is never
// too narrow for that, and unlike a bootstrap's it does not vanish where every item is right.
Interval wilson_of_items(const Units& units, double confidence) {
  Number sum;
  double squares = 0;
  for (const Number& unit : units) {
    sum = {sum.value + unit.value, sum.weight + unit.weight};
    squares += unit.weight * unit.weight;
  }
  const double n = sum.weight * sum.weight / squares;
  return wilson(sum.value * n / sum.weight, n, confidence);
}

void add_interval(const Units& units, const Metric& metric, const EvaluationOptions& options,
                  ResultRow& row) {
  row.n = static_cast<int64_t>(units.size());
  if (metric.interval == IntervalKind::kWilson) {
    row.interval = wilson_of_items(units, options.confidence);
    row.kind = IntervalKind::kWilson;
    return;
  }
  if (units.size() < 2) return;  // one unit says nothing of how much units differ
  row.kind = IntervalKind::kBootstrap;
  row.interval =
      bootstrap(static_cast<uint32_t>(units.size()), bootstrap_options(options),
                [&](std::span<const uint32_t> drawn) { return of_drawn(units, drawn, metric); });
}

bool right_or_wrong(const Units& units) {
  return std::ranges::all_of(units, [](const Number& unit) {
    return unit.weight == 1 && (unit.value == 0 || unit.value == 1);
  });
}

// Whether two lists of paired units differ beyond chance.
bool differs(const Units& base, const Units& subject, const Metric& metric,
             const std::optional<Interval>& interval, double confidence) {
  if (metric.interval == IntervalKind::kWilson && right_or_wrong(base) && right_or_wrong(subject)) {
    int64_t only_base = 0, only_subject = 0;
    for (size_t i = 0; i < base.size(); ++i) {
      only_base += base[i].value > subject[i].value ? 1 : 0;
      only_subject += subject[i].value > base[i].value ? 1 : 0;
    }
    return mcnemar_exact(only_base, only_subject) < 1 - confidence;
  }
  // The bootstrap of a handful of units is too narrow: it never sees what is not among them.
  if (mcnemar_exact(0, static_cast<int64_t>(base.size())) >= 1 - confidence) return false;
  return interval && (interval->low > 0 || interval->high < 0);
}

std::optional<Comparison> compare(const Items& base_items, const Items& subject_items,
                                  const Metric& metric, const EvaluationOptions& options) {
  Units base, subject;
  for (const auto& [item, number] : base_items) {
    const auto same = subject_items.find(item);
    if (same == subject_items.end()) continue;
    base.push_back(number);
    subject.push_back(same->second);
  }
  if (base.empty()) return std::nullopt;
  Comparison out;
  out.delta = of_all(subject, metric) - of_all(base, metric);
  if (base.size() >= 2) {
    out.interval =
        bootstrap(static_cast<uint32_t>(base.size()), bootstrap_options(options),
                  [&](std::span<const uint32_t> drawn) {
                    return of_drawn(subject, drawn, metric) - of_drawn(base, drawn, metric);
                  });
  }
  if (differs(base, subject, metric, out.interval, options.confidence)) {
    const bool better = (out.delta < 0) == metric.lower_is_better;
    out.verdict = !metric.judged ? Verdict::kDifferent
                  : better       ? Verdict::kBetter
                                 : Verdict::kWorse;
  }
  return out;
}

// The observation's values of `keys`; nullopt: it lacks one.
std::optional<Dims> group_of(const Observation& observation, const std::vector<std::string>& keys) {
  Dims out;
  for (const std::string& key : keys) {
    const std::string* value = find(observation.dims, key);
    if (value == nullptr) return std::nullopt;
    out.emplace_back(key, *value);
  }
  return out;
}

struct Group {
  Dims dims;
  std::vector<Items> items;  // a subject
};

std::vector<Group> groups_of(int32_t metric, const std::vector<std::string>& keys,
                             std::span<const Observed> observed) {
  std::vector<Group> groups;
  std::map<Dims, size_t> index;
  for (size_t s = 0; s < observed.size(); ++s) {
    for (const Observation& observation : observed[s].observations) {
      if (observation.metric != metric) continue;
      const auto dims = group_of(observation, keys);
      if (!dims) continue;
      const auto [at, is_new] = index.try_emplace(*dims, groups.size());
      if (is_new) groups.push_back({*dims, std::vector<Items>(observed.size())});
      Number& number = groups[at->second].items[s][observation.item];
      number.value += observation.value;
      number.weight += observation.weight;
    }
  }
  return groups;
}

}  // namespace

std::vector<ResultRow> summarise(const std::string& task, std::span<const Metric> metrics,
                                 std::span<const Observed> observed,
                                 const EvaluationOptions& options) {
  std::vector<ResultRow> rows;
  for (size_t m = 0; m < metrics.size(); ++m) {
    const Metric& metric = metrics[m];
    for (const auto& keys : metric.groupings) {
      for (const Group& group : groups_of(static_cast<int32_t>(m), keys, observed)) {
        for (size_t s = 0; s < observed.size(); ++s) {
          if (group.items[s].empty()) continue;
          const Units units = units_of(group.items[s]);
          ResultRow row{.task = task,
                        .subject = observed[s].subject,
                        .metric = metric.name,
                        .dims = group.dims,
                        .value = of_all(units, metric),
                        .confidence = options.confidence};
          add_interval(units, metric, options, row);
          if (s > 0) row.comparison = compare(group.items[0], group.items[s], metric, options);
          rows.push_back(std::move(row));
        }
      }
    }
  }
  return rows;
}

}  // namespace dex::evaluate
