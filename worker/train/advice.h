#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/evaluate/branch_effect_report.h"
#include "worker/train/resolve.h"
#include "worker/train/spec.h"

namespace dex::train {

// A hint to the user (method.md §5). `evidence` says what was seen, `suggestion` what to try: each
// stands alone, begins in lower case and ends without a full stop, so that whoever shows them can
// join them.
struct Advice {
  std::string topic, evidence, suggestion;
  std::string sentence() const { return evidence + ". Try: " + suggestion; }
};

// `branch_out_of_reach` (method.md §2.2): the branch's share of O that this run can reach at best,
// r_reach = reach(λ)·√d·lr_diff·F for w_d from zeros, 0.58·reach(λ) for linear; of uniform_map,
// which has only gates, reach(λ)·lr_diff·F (ours: V̄ is about as large as O); raised below 0.02. d
// is the width that the projection multiplies (model::projected_width).
double branch_reach(const JobSpec& spec, const Resolved& resolved, int64_t width);
std::optional<Advice> branch_out_of_reach(const JobSpec& spec, const Resolved& resolved,
                                          int64_t width);

// `start_not_identity` (method.md §3.5): what a literal start adds to the loss before any training,
// in nats a token.
Advice start_not_identity(double loss_change);

// `inert`, `weak` (method.md §2.6), at the end of a job; nothing for an active branch or none.
// `held_out`: whether the effect was measured on held-out rows, else on those trained on.
std::optional<Advice> ineffective(const evaluate::BranchEffect& effect, const JobSpec& spec,
                                  const Resolved& resolved, bool held_out);

// `degraded`: held-out loss above the base's by more than 0.5 % after T/4 updates.
std::optional<Advice> degraded(double base_loss, double valid_loss, int64_t step,
                               const JobSpec& spec, const Resolved& resolved,
                               double selected_ratio);

// `overfitting`: held-out loss rose three times running while the training loss of the same
// stretches fell.
std::optional<Advice> overfitting(const std::vector<double>& valid_losses,
                                  const std::vector<double>& train_losses, const JobSpec& spec);

// `unstable`: among the last 50 updates ≥ 3 losses above median + 6·MAD, or p99/p50 of the gradient
// norm > 10.
std::optional<Advice> unstable(const std::vector<double>& losses, const std::vector<double>& norms,
                               const JobSpec& spec, const Resolved& resolved);

// `calibration_small`, `calibration_short`: fewer rows than asked for, or none longer than
// skip_rows (method.md §4.1). Nothing where nothing was measured.
std::vector<Advice> calibration_advice(const Calibration& asked,
                                       const evaluate::HeadScores& scores);

// `selection_empty`, `selection_wide` (method.md §4.9), for threshold rules.
std::optional<Advice> selection_share(const evaluate::SelectionRule& rule,
                                      const evaluate::HeadScores& scores, double ratio);

}  // namespace dex::train
