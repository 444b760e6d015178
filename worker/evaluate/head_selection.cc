#include "worker/evaluate/head_selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace dex::evaluate {
namespace {

constexpr double kEntropyMargin = 0.1;  // method.md §3.4
constexpr double kEnterFactor = 0.9, kLeaveFactor = 1.1;

std::vector<int32_t> lowest(const std::vector<double>& scores, double fraction) {
  const auto heads = static_cast<int32_t>(scores.size());
  // ⌊fraction·H⌋ of the number that was meant: 0.58 · 50 is 28.999999999999996.
  const int32_t k =
      std::clamp<int32_t>(static_cast<int32_t>(std::floor(fraction * heads + 1e-9)), 1, heads);
  std::vector<int32_t> order(heads);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return scores[a] < scores[b]; });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

std::vector<double> negated(std::vector<double> scores) {
  for (double& score : scores) score = -score;
  return scores;
}

// One layer's scores in the rule's units.
struct LayerUnits {
  std::vector<double> entropy, contribution;
};

LayerUnits in_units(const SelectionRule& rule, const HeadScores& scores, size_t layer) {
  return {entropy_in_unit(scores.entropy_nats[layer], scores.entropy_normalized[layer],
                          rule.entropy_unit),
          contribution_in_unit(scores.importance[layer], rule.contribution_unit)};
}

void check_table(const HeadTable& table, const char* what, int32_t layers, int32_t heads) {
  if (table.size() != static_cast<size_t>(layers)) {
    throw std::runtime_error(std::string("[select_heads] ") + what + " must have " +
                             std::to_string(layers) + " layers, got " +
                             std::to_string(table.size()));
  }
  for (size_t l = 0; l < table.size(); ++l) {
    if (table[l].size() != static_cast<size_t>(heads)) {
      throw std::runtime_error(std::string("[select_heads] ") + what + " of layer " +
                               std::to_string(l) + " must have " + std::to_string(heads) +
                               " heads, got " + std::to_string(table[l].size()));
    }
    for (size_t h = 0; h < table[l].size(); ++h) {
      if (!std::isfinite(table[l][h])) {
        throw std::runtime_error(std::string("[select_heads] ") + what + " of layer " +
                                 std::to_string(l) + ", head " + std::to_string(h) +
                                 " is not finite: the calibration rows or weights are broken");
      }
    }
  }
}

HeadSets checked_explicit(const HeadSets& sets, int32_t layers, int32_t heads) {
  if (sets.size() != static_cast<size_t>(layers)) {
    throw std::runtime_error("head_selection.heads must list " + std::to_string(layers) +
                             " layers, got " + std::to_string(sets.size()));
  }
  HeadSets out = sets;
  for (size_t l = 0; l < out.size(); ++l) {
    std::sort(out[l].begin(), out[l].end());
    for (size_t i = 0; i < out[l].size(); ++i) {
      const int32_t head = out[l][i];
      if (head < 0 || head >= heads) {
        throw std::runtime_error("layer " + std::to_string(l) + ": head " + std::to_string(head) +
                                 " of " + std::to_string(heads));
      }
      if (i > 0 && out[l][i - 1] == head) {
        throw std::runtime_error("layer " + std::to_string(l) + ": head " + std::to_string(head) +
                                 " twice");
      }
    }
  }
  return out;
}

std::vector<int32_t> every_head(int32_t heads) {
  std::vector<int32_t> all(heads);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<int32_t> above_threshold(const SelectionRule& rule, const HeadScores& scores,
                                     size_t layer) {
  const auto units = in_units(rule, scores, layer);
  std::vector<int32_t> chosen;
  for (size_t h = 0; h < units.entropy.size(); ++h) {
    if (units.entropy[h] > rule.tau || units.contribution[h] < rule.eta)
      chosen.push_back(static_cast<int32_t>(h));
  }
  return chosen;
}

std::vector<int32_t> with_hysteresis(const SelectionRule& rule, const HeadScores& scores,
                                     size_t layer, const std::vector<int32_t>& present) {
  const auto units = in_units(rule, scores, layer);
  std::vector<int32_t> chosen;
  for (size_t h = 0; h < units.entropy.size(); ++h) {
    const double entropy = units.entropy[h], contribution = units.contribution[h];
    const bool was = std::binary_search(present.begin(), present.end(), static_cast<int32_t>(h));
    const bool enters =
        entropy > rule.tau + kEntropyMargin || contribution < kEnterFactor * rule.eta;
    const bool leaves =
        entropy < rule.tau - kEntropyMargin && contribution > kLeaveFactor * rule.eta;
    if (was ? !leaves : enters) chosen.push_back(static_cast<int32_t>(h));
  }
  return chosen;
}

double rounded(double value, double step) {
  return std::round(value / step) * step;
}

}  // namespace

const char* entropy_of(bool magnitudes) {
  return magnitudes ? "|M| renormalised" : "A";
}

bool needs_entropy(const SelectionRule& rule) {
  return rule.criterion == Criterion::kEntropy || rule.criterion == Criterion::kThreshold;
}

bool needs_importance(const SelectionRule& rule) {
  return rule.criterion == Criterion::kImportance || rule.criterion == Criterion::kThreshold;
}

HeadSets select_heads(const SelectionRule& rule, const HeadScores& scores, int32_t layers,
                      int32_t heads) {
  if (rule.criterion == Criterion::kExplicit) return checked_explicit(rule.heads, layers, heads);
  if (rule.criterion == Criterion::kAll) return HeadSets(layers, every_head(heads));
  if (needs_entropy(rule)) check_table(scores.entropy_nats, "entropy", layers, heads);
  if (needs_importance(rule)) check_table(scores.importance, "importance", layers, heads);
  HeadSets sets;
  for (int32_t l = 0; l < layers; ++l) {
    if (rule.criterion == Criterion::kEntropy)
      sets.push_back(lowest(negated(scores.entropy_nats[l]), rule.fraction));
    if (rule.criterion == Criterion::kImportance)
      sets.push_back(lowest(scores.importance[l], rule.fraction));
    if (rule.criterion == Criterion::kThreshold) sets.push_back(above_threshold(rule, scores, l));
  }
  return sets;
}

HeadSets reselect_heads(const SelectionRule& rule, const HeadScores& scores,
                        const HeadSets& present, int32_t heads) {
  const auto layers = static_cast<int32_t>(present.size());
  HeadSets sets = select_heads(rule, scores, layers, heads);
  if (rule.criterion != Criterion::kThreshold) return sets;
  for (int32_t l = 0; l < layers; ++l) sets[l] = with_hysteresis(rule, scores, l, present[l]);
  return sets;
}

std::vector<std::vector<Reason>> reasons(const SelectionRule& rule, const HeadScores& scores) {
  std::vector<std::vector<Reason>> out;
  if (rule.criterion != Criterion::kThreshold) return out;
  for (size_t l = 0; l < scores.importance.size(); ++l) {
    const auto units = in_units(rule, scores, l);
    std::vector<Reason> layer;
    for (size_t h = 0; h < units.entropy.size(); ++h) {
      const bool entropy = units.entropy[h] > rule.tau,
                 contribution = units.contribution[h] < rule.eta;
      layer.push_back(entropy && contribution ? Reason::kBoth
                      : entropy               ? Reason::kEntropy
                      : contribution          ? Reason::kContribution
                                              : Reason::kNone);
    }
    out.push_back(std::move(layer));
  }
  return out;
}

double selected_ratio(const HeadSets& sets, int32_t heads) {
  size_t chosen = 0;
  for (const auto& set : sets) chosen += set.size();
  return sets.empty() ? 0.0
                      : static_cast<double>(chosen) / (static_cast<double>(sets.size()) * heads);
}

std::optional<Thresholds> nearest_thresholds(const SelectionRule& rule, const HeadScores& scores) {
  constexpr double kLeast = 0.1, kMost = 0.5;
  constexpr int kSteps = 200;
  const auto layers = static_cast<int32_t>(scores.entropy_nats.size());
  if (layers == 0 || scores.importance.size() != scores.entropy_nats.size()) return std::nullopt;
  const auto heads = static_cast<int32_t>(scores.entropy_nats[0].size());
  double least = std::numeric_limits<double>::infinity(), most = -least, largest = 0;
  for (size_t l = 0; l < scores.entropy_nats.size(); ++l) {
    const auto units = in_units(rule, scores, l);
    for (size_t h = 0; h < units.entropy.size(); ++h) {
      least = std::min(least, units.entropy[h]);
      most = std::max(most, units.entropy[h]);
      largest = std::max(largest, units.contribution[h]);
    }
  }
  // The far end chooses nothing (everything), so the share falls (rises) all the way.
  const bool wide = selected_ratio(select_heads(rule, scores, layers, heads), heads) > kMost;
  const double far_tau = wide ? std::max(rule.tau, most) : std::min(rule.tau, least - 0.01);
  const double far_eta = wide ? 0.0 : std::max(rule.eta, largest + 0.001);
  SelectionRule other = rule;
  for (int step = 1; step <= kSteps; ++step) {
    const double way = static_cast<double>(step) / kSteps;
    other.tau = rounded(rule.tau + way * (far_tau - rule.tau), 0.01);
    other.eta = rounded(rule.eta + way * (far_eta - rule.eta), 0.001);
    const double ratio = selected_ratio(select_heads(other, scores, layers, heads), heads);
    if (ratio >= kLeast && ratio <= kMost) return Thresholds{other.tau, other.eta, ratio};
  }
  return std::nullopt;
}

}  // namespace dex::evaluate
