#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "services/statistics/statistics.h"

// What a metric says of some items, and of two models on the same items (method.md §9, api.md §2).
// Pure functions of their arguments.
namespace dex::statistics {

// What a metric adds up for one item; the metric is Σ value / Σ weight over items.
struct Number {
  double value = 0;
  double weight = 0;
};

// How the numbers of a metric become a figure and a verdict.
struct MetricRule {
  bool shares = true;  // values count successes out of `weight`
  bool lower_is_better = false;
  bool exponential = false;  // the figure is exp of it: perplexity
  bool judged = true;        // false: neither way is better, a real difference is only DIFFERENT
  bool operator==(const MetricRule&) const = default;
};

// The figure over all items, and over those that a resample has drawn. Items without weight: 0, or
// exp of it.
double figure(std::span<const Number> items, const MetricRule& rule);
double figure(std::span<const Number> items, std::span<const uint32_t> drawn,
              const MetricRule& rule);

enum class Verdict { kBetter, kWorse, kNoDifference, kDifferent };
const char* name(Verdict verdict);  // "BETTER" …

// One model against another on the items that both have, in the metric's unit.
struct Comparison {
  double delta = 0;                  // the one − the other
  std::optional<Interval> interval;  // paired bootstrap; absent with fewer than two items
  // BETTER or WORSE, or DIFFERENT where neither way is better, when the difference is real at the
  // confidence: by McNemar's exact test where every item is right or wrong, else when `interval`
  // leaves out 0. Never with so few items that all of them going one way would still be chance (by
  // the sign test: six at 95 %).
  Verdict verdict = Verdict::kNoDifference;
  int64_t n = 0;  // items
};

// `base` and `subject` hold the same items in the same order. Nothing: there are none.
std::optional<Comparison> compare(std::span<const Number> base, std::span<const Number> subject,
                                  const MetricRule& rule, const BootstrapOptions& options);

// Sentences on why some of these say NO_DIFFERENCE though their figures differ: too few items for
// any verdict, or McNemar's test against an interval that leaves out 0. Empty: none does.
std::vector<std::string> verdict_notes(std::span<const Comparison> comparisons, double confidence);

}  // namespace dex::statistics
