#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker/evaluate/head_scores.h"
#include "worker/evaluate/head_selection.h"
#include "worker/model/llama.h"
#include "worker/train/examples.h"
#include "worker/train/spec.h"

namespace dex::train {

// Rows on which heads are measured: a seeded choice among the training examples, cut to
// `seq_length` (method.md §2.3). Any example of seq_length or 4·skip_rows tokens or more is as
// likely as another; only where these are too few come the longest of the others.
std::vector<evaluate::Document> calibration_documents(const std::vector<Example>& examples,
                                                      const Calibration& calibration,
                                                      uint64_t seed);

struct Selection {
  evaluate::HeadSets heads;
  evaluate::HeadScores scores;
  int32_t heads_a_layer = 0;
  double ratio = 0;  // chosen / all
};

// Measures what the rule needs, on the model as `adaptation` makes it, and chooses. `present`: the
// heads selected now, for a re-selection with hysteresis; null at the start. Throws Failure
// invalid_hyperparameter for a bad list, for calibration rows that are too short to be measured,
// and for a tau in nats where they are too short for nats.
Selection select(const JobSpec& spec, const model::Llama& llama,
                 const model::Adaptation& adaptation, const std::vector<Example>& examples,
                 const evaluate::HeadSets* present, kernels::LinearCrossEntropy& cross_entropy,
                 const std::function<void()>& between);

// For a re-selection of a job that trains its branch alone: where the rule chose nothing, puts the
// heads back that are selected now, or nothing would be trained. Whether it did.
bool keep_some(const JobSpec& spec, const evaluate::HeadSets& present, Selection& selection);

// How far the choice depends on the rows that were measured: every other calibration row makes one
// half, and the heads that both halves choose are divided by those that either chooses (1: the same
// heads, or none). Nothing where the rule measures nothing or a half has too little to be measured.
// Costs as much as select().
std::optional<double> selection_stability(const JobSpec& spec, const model::Llama& llama,
                                          const std::vector<Example>& examples,
                                          kernels::LinearCrossEntropy& cross_entropy,
                                          const std::function<void()>& between);
// |A ∩ B| / |A ∪ B| over all layers; 1 where both are empty.
double overlap(const evaluate::HeadSets& a, const evaluate::HeadSets& b);

}  // namespace dex::train
