#pragma once

#include <functional>
#include <string>
#include <vector>

#include "worker/evaluate/head_scores.h"
#include "worker/evaluate/head_selection.h"
#include "worker/model/llama.h"
#include "worker/train/examples.h"
#include "worker/train/spec.h"

namespace dex::train {

// Rows on which heads are measured: a seeded choice among the training examples, cut to
// `seq_length`; examples that fill it come first, then the longest others (method.md §2.3).
std::vector<evaluate::Document> calibration_documents(const std::vector<Example>& examples,
                                                      const Calibration& calibration,
                                                      uint64_t seed);

struct Selection {
  evaluate::HeadSets heads;
  evaluate::HeadScores scores;
  double ratio = 0;  // chosen / all
};

// Measures what the rule needs, on the model as `adaptation` makes it, and chooses. `present`: the
// heads selected now, for a re-selection with hysteresis; null at the start. Throws Failure
// invalid_hyperparameter for a bad list.
Selection select(const JobSpec& spec, const model::Llama& llama,
                 const model::Adaptation& adaptation, const std::vector<Example>& examples,
                 const evaluate::HeadSets* present, kernels::LinearCrossEntropy& cross_entropy,
                 const std::function<void()>& between);

const char* name(evaluate::Criterion criterion);  // "THRESHOLD"

// HeadSelectionComplete (events.proto) as JSON; `step` 0: before training.
std::string selection_event(const JobSpec& spec, const Selection& selection, int64_t step);
// The report of method.md §4.9 as JSON: rule, units, calibration, scores, sets, and which condition
// chose each head.
std::string selection_report(const JobSpec& spec, const Selection& selection, int64_t step);

}  // namespace dex::train
