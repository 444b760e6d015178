#include "worker/evaluate/summary.h"

#include <algorithm>
#include <map>
#include <utility>

namespace dex::evaluate {
namespace {

using statistics::figure;
using statistics::Number;
// Items of one group of one subject. Several observations of an item add up: they share its fate in
// a resample.
using Items = std::map<int64_t, Number>;
using Units = std::vector<Number>;

Units units_of(const Items& items) {
  Units out;
  for (const auto& [item, number] : items) out.push_back(number);
  return out;
}

statistics::MetricRule rule_of(const Metric& metric) {
  return {metric.interval == IntervalKind::kWilson, metric.lower_is_better, metric.exponential,
          metric.judged};
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
  const statistics::MetricRule rule = rule_of(metric);
  row.interval =
      bootstrap(static_cast<uint32_t>(units.size()), bootstrap_options(options),
                [&](std::span<const uint32_t> drawn) { return figure(units, drawn, rule); });
}

std::optional<Comparison> compare_items(const Items& base_items, const Items& subject_items,
                                        const Metric& metric, const EvaluationOptions& options) {
  Units base, subject;
  for (const auto& [item, number] : base_items) {
    const auto same = subject_items.find(item);
    if (same == subject_items.end()) continue;
    base.push_back(number);
    subject.push_back(same->second);
  }
  return statistics::compare(base, subject, rule_of(metric), bootstrap_options(options));
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

// Rows of heads and of pairs of heads are tables, and too many.
bool is_of_heads(const std::vector<std::string>& keys) {
  return std::find(keys.begin(), keys.end(), "head") != keys.end();
}

statistics::ItemRow item_row(const std::string& subject, const Metric& metric, const Group& group,
                             const Items& items) {
  statistics::ItemRow row{.metric = metric.name,
                          .subject = subject,
                          .dims = {group.dims.begin(), group.dims.end()},
                          .rule = rule_of(metric)};
  for (const auto& [item, number] : items) {
    row.items.push_back(item);
    row.numbers.push_back(number);
  }
  return row;
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
                        .value = figure(units, rule_of(metric)),
                        .confidence = options.confidence};
          add_interval(units, metric, options, row);
          if (s > 0)
            row.comparison = compare_items(group.items[0], group.items[s], metric, options);
          rows.push_back(std::move(row));
        }
      }
    }
  }
  return rows;
}

std::vector<statistics::ItemRow> item_rows(std::span<const Metric> metrics,
                                           std::span<const Observed> observed) {
  std::vector<statistics::ItemRow> rows;
  for (size_t m = 0; m < metrics.size(); ++m) {
    for (const auto& keys : metrics[m].groupings) {
      if (is_of_heads(keys)) continue;
      for (const Group& group : groups_of(static_cast<int32_t>(m), keys, observed)) {
        for (size_t s = 0; s < observed.size(); ++s) {
          if (!group.items[s].empty())
            rows.push_back(item_row(observed[s].subject, metrics[m], group, group.items[s]));
        }
      }
    }
  }
  return rows;
}

std::vector<std::string> verdict_notes(std::span<const ResultRow> rows, double confidence) {
  std::vector<Comparison> comparisons;
  for (const ResultRow& row : rows) {
    if (row.comparison) comparisons.push_back(*row.comparison);
  }
  return statistics::verdict_notes(comparisons, confidence);
}

}  // namespace dex::evaluate
