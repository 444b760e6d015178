#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace dex::train {

// Watches loss and gradient norm of every update (jobs.md §6): a non-finite update is skipped;
// after `non_finite_patience` in a row, or after `loss_patience` updates in a row above loss_factor
// × running median, the job goes back to its last good checkpoint, at most `max_rollbacks` times,
// then it fails. Pure bookkeeping.
class Watchdog {
 public:
  enum class OnTrip { kRollback, kFail, kWarn };
  struct Options {
    int32_t non_finite_patience = 3;
    double loss_factor = 3;
    int32_t loss_patience = 20;
    OnTrip on_trip = OnTrip::kRollback;
    int32_t max_rollbacks = 1;
  };
  enum class Action { kApply, kSkip, kRollback, kFail };
  struct Verdict {
    Action action = Action::kApply;
    std::string code;     // "non_finite_loss", "loss_diverged"; empty when nothing is wrong
    std::string message;  // what was seen, and the limit
    double value = 0, limit = 0;
  };
  // What a checkpoint keeps.
  struct State {
    int32_t non_finite_in_row = 0, above_in_row = 0, rollbacks = 0;
    int64_t skipped = 0;         // updates not applied, in the whole job
    std::vector<double> recent;  // finite losses, oldest first, at most kMedianWindow
  };
  static constexpr size_t kMedianWindow = 50;

  explicit Watchdog(const Options& options) : options_(options) {}

  // To be asked once an update, before the optimizer acts. kRollback: restore the last checkpoint;
  // the caller then calls `rolled_back`.
  Verdict check(int64_t step, double loss, double grad_norm);
  void rolled_back();

  const State& state() const { return state_; }
  void restore(State state) { state_ = std::move(state); }

 private:
  Verdict trip(std::string code, std::string message, double value, double limit);

  Options options_;
  State state_;
};

}  // namespace dex::train
