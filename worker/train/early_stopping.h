#pragma once

#include <cstdint>
#include <optional>

namespace dex::train {

// Decides from the held-out losses which weights are the best ones and when a job has stopped
// learning (api.md §3). Pure bookkeeping; one call an evaluation.
class EarlyStopping {
 public:
  struct Options {
    bool enabled = false;
    int32_t patience = 3;      // evaluations in a row without an improvement
    double min_delta = 0;      // an improvement is a loss lower by more than this
    int32_t warmup_evals = 1;  // first evaluations that don't count; that of the base is one
    bool restore_best = true;  // publish the best weights rather than the last
  };
  // What a checkpoint keeps.
  struct State {
    int64_t evaluations = 0;
    int32_t in_row = 0;               // counted evaluations since the last improvement
    std::optional<double> reference;  // the loss that an improvement has to undercut
    std::optional<double> best_loss;
    int64_t best_step = -1;
    bool stopped = false;
    bool operator==(const State&) const = default;
  };

  explicit EarlyStopping(const Options& options) : options_(options) {}

  // Takes the loss after `step` updates; true: these weights are the best so far. Step 0 is never
  // the best, since nothing of it was trained. `publishable` false (masks, or a second map,
  // on their way): the evaluation counts in no way, for its weights are none that could be
  // published.
  bool take(int64_t step, double loss, bool publishable);

  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }
  const Options& options() const { return options_; }
  bool keeps_best() const { return options_.enabled && options_.restore_best; }

 private:
  Options options_;
  State state_;
};

}  // namespace dex::train
