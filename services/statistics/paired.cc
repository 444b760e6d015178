#include "services/statistics/paired.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace dex::statistics {

namespace {

double ratio(const Number& sum, const MetricRule& rule) {
  const double value = sum.weight > 0 ? sum.value / sum.weight : 0;
  return rule.exponential ? std::exp(value) : value;
}

bool right_or_wrong(std::span<const Number> items) {
  return std::ranges::all_of(items, [](const Number& item) {
    return item.weight == 1 && (item.value == 0 || item.value == 1);
  });
}

// Whether so many items could all go one way by chance (the sign test): then nothing that they say
// is a difference.
bool too_few(int64_t items, double confidence) {
  return mcnemar_exact(0, items) >= 1 - confidence;
}

bool leaves_out_zero(const std::optional<Interval>& interval) {
  return interval && (interval->low > 0 || interval->high < 0);
}

// Whether two lists of paired items differ beyond chance.
bool differs(std::span<const Number> base, std::span<const Number> subject, const MetricRule& rule,
             const std::optional<Interval>& interval, double confidence) {
  if (rule.shares && right_or_wrong(base) && right_or_wrong(subject)) {
    int64_t only_base = 0, only_subject = 0;
    for (size_t i = 0; i < base.size(); ++i) {
      only_base += base[i].value > subject[i].value ? 1 : 0;
      only_subject += subject[i].value > base[i].value ? 1 : 0;
    }
    return mcnemar_exact(only_base, only_subject) < 1 - confidence;
  }
  // The bootstrap of a handful of items is too narrow: it never sees what is not among them.
  if (too_few(static_cast<int64_t>(base.size()), confidence)) return false;
  return leaves_out_zero(interval);
}

// Numbers of items of comparisons that had too few for a verdict.
std::string too_few_note(int64_t least, int64_t most, double confidence) {
  int64_t needed = most + 1;
  while (too_few(needed, confidence)) ++needed;
  std::array<char, 24> at{};
  std::snprintf(at.data(), at.size(), "%g %%", confidence * 100);
  return "n = " + std::to_string(least) + (least < most ? " to " + std::to_string(most) : "") +
         (least < most ? " are" : " is") + " too few for a verdict at " + at.data() +
         ", which takes " + std::to_string(needed) +
         " at least: such rows say NO_DIFFERENCE whatever their interval; give more data";
}

}  // namespace

double figure(std::span<const Number> items, const MetricRule& rule) {
  Number sum;
  for (const Number& item : items) sum = {sum.value + item.value, sum.weight + item.weight};
  return ratio(sum, rule);
}

double figure(std::span<const Number> items, std::span<const uint32_t> drawn,
              const MetricRule& rule) {
  Number sum;
  for (const uint32_t i : drawn) sum = {sum.value + items[i].value, sum.weight + items[i].weight};
  return ratio(sum, rule);
}

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kBetter:
      return "BETTER";
    case Verdict::kWorse:
      return "WORSE";
    case Verdict::kNoDifference:
      return "NO_DIFFERENCE";
    case Verdict::kDifferent:
      return "DIFFERENT";
  }
  return "";
}

std::optional<Comparison> compare(std::span<const Number> base, std::span<const Number> subject,
                                  const MetricRule& rule, const BootstrapOptions& options) {
  if (base.empty()) return std::nullopt;
  Comparison out;
  out.n = static_cast<int64_t>(base.size());
  out.delta = figure(subject, rule) - figure(base, rule);
  if (base.size() >= 2) {
    out.interval = bootstrap(static_cast<uint32_t>(base.size()), options,
                             [&](std::span<const uint32_t> drawn) {
                               return figure(subject, drawn, rule) - figure(base, drawn, rule);
                             });
  }
  if (differs(base, subject, rule, out.interval, options.confidence)) {
    const bool better = (out.delta < 0) == rule.lower_is_better;
    out.verdict = !rule.judged ? Verdict::kDifferent : better ? Verdict::kBetter : Verdict::kWorse;
  }
  return out;
}

std::vector<std::string> verdict_notes(std::span<const Comparison> comparisons, double confidence) {
  int64_t least = 0, most = 0;  // items of those that had too few
  bool by_test = false;
  for (const Comparison& comparison : comparisons) {
    if (comparison.verdict != Verdict::kNoDifference || comparison.delta == 0) continue;
    const int64_t n = comparison.n;
    if (too_few(n, confidence)) {
      least = most == 0 ? n : std::min(least, n);
      most = std::max(most, n);
    } else if (leaves_out_zero(comparison.interval)) {
      by_test = true;
    }
  }
  std::vector<std::string> notes;
  if (most > 0) notes.push_back(too_few_note(least, most, confidence));
  if (by_test) {
    notes.emplace_back(
        "where an interval leaves out 0 and the verdict is NO_DIFFERENCE, McNemar's exact test "
        "decided: too few samples went from right to wrong or back");
  }
  return notes;
}

}  // namespace dex::statistics
