#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/evaluate/head_units.h"

namespace dex::evaluate {

// A number for each query head of each layer, [L][H].
using HeadTable = std::vector<std::vector<double>>;
// The chosen query heads of each layer, ascending, 0-based.
using HeadSets = std::vector<std::vector<int32_t>>;

// What a calibration pass measured; tables that the criterion does not need are empty.
struct HeadScores {
  HeadTable entropy_nats;  // method.md §4.1: mean over rows ≥ skip_rows, then over sequences
  HeadTable entropy_normalized;       // the same of H/ln(i+1)
  HeadTable importance;               // §4.2
  int64_t sequences = 0, tokens = 0;  // that were measured
  int32_t skip_rows = 0;  // as used: 1 when no sequence was longer than what was asked for
  bool short_sequences =
      false;  // true: skip_rows was lowered, and entropy_nats holds the normalized values
  // Some maps are signed, which have no entropy: the tables hold that of |M|, each row divided by
  // its sum (method.md §4.1).
  bool entropy_of_magnitudes = false;
};

// What entropies are of, for reports: "A" (softmax weights) or "|M| renormalised".
const char* entropy_of(bool magnitudes);

enum class Criterion { kEntropy, kImportance, kThreshold, kAll, kExplicit };

struct SelectionRule {
  Criterion criterion = Criterion::kEntropy;
  double fraction = 0.5;  // kEntropy, kImportance: k = max(1, ⌊fraction·H⌋) heads a layer
  double tau = 0, eta = 0;
  EntropyUnit entropy_unit = EntropyUnit::kZscore;
  ContributionUnit contribution_unit = ContributionUnit::kL2norm;
  HeadSets heads;  // kExplicit
};

bool needs_entropy(const SelectionRule& rule);
bool needs_importance(const SelectionRule& rule);

// The heads that `rule` chooses of `layers` × `heads` (method.md §3.4): highest entropy, lowest
// importance (ties: lower index), entropy > τ or contribution < η, all, or the lists given. Throws
// std::runtime_error for a bad explicit list, naming layer and head, and for scores that are
// missing or not finite.
HeadSets select_heads(const SelectionRule& rule, const HeadScores& scores, int32_t layers,
                      int32_t heads);

// Re-selection with hysteresis (method.md §3.4): by threshold a head enters at entropy > τ + 0.1 or
// contribution < 0.9·η and leaves only at entropy < τ − 0.1 and contribution > 1.1·η. Other
// criteria have no threshold to soften and choose afresh.
HeadSets reselect_heads(const SelectionRule& rule, const HeadScores& scores,
                        const HeadSets& present, int32_t heads);

// Which condition chose a head under kThreshold.
enum class Reason { kNone, kEntropy, kContribution, kBoth };
std::vector<std::vector<Reason>> reasons(const SelectionRule& rule, const HeadScores& scores);

double selected_ratio(const HeadSets& sets, int32_t heads);  // chosen / all

// Thresholds near those of a kThreshold rule that choose 10–50 % of all heads, moved together as
// little as possible (method.md §4.9, §5): up for τ and down for η where the rule chooses more than
// half, else the other way. Rounded to 0.01 and 0.001; `ratio` is what the rounded ones choose.
// None: the scores lie so that no such pair is on the way (few heads, or all alike).
struct Thresholds {
  double tau = 0, eta = 0, ratio = 0;
};
std::optional<Thresholds> nearest_thresholds(const SelectionRule& rule, const HeadScores& scores);

}  // namespace dex::evaluate
