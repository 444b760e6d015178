#include "worker/train/watchdog.h"

#include <algorithm>
#include <cmath>

#include "worker/train/number_text.h"

namespace dex::train {
namespace {

constexpr size_t kMinHistory = 10;  // a median of fewer losses says nothing

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Watchdog::Verdict Watchdog::trip(std::string code, std::string message, double value,
                                 double limit) {
  Verdict verdict{Action::kSkip, std::move(code), std::move(message), value, limit};
  if (options_.on_trip == OnTrip::kFail) verdict.action = Action::kFail;
  if (options_.on_trip == OnTrip::kRollback) {
    verdict.action = state_.rollbacks < options_.max_rollbacks ? Action::kRollback : Action::kFail;
  }
  return verdict;
}

Watchdog::Verdict Watchdog::check(int64_t step, double loss, double grad_norm) {
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) {
    ++state_.skipped;
    ++state_.non_finite_in_row;
    const char* what = std::isfinite(loss) ? "gradient norm" : "loss";
    const std::string message = std::string(what) + " of step " + std::to_string(step) +
                                " is not finite (" + std::to_string(state_.non_finite_in_row) +
                                " in a row, limit " + std::to_string(options_.non_finite_patience) +
                                ")";
    if (state_.non_finite_in_row >= options_.non_finite_patience) {
      Verdict verdict = trip("non_finite_loss", message, loss, options_.non_finite_patience);
      // Going on would never end: a job whose every update is skipped trains nothing.
      if (options_.on_trip == OnTrip::kWarn) verdict.action = Action::kFail;
      return verdict;
    }
    return {Action::kSkip, "non_finite_loss", message, loss,
            static_cast<double>(options_.non_finite_patience)};
  }
  state_.non_finite_in_row = 0;
  Verdict verdict;
  if (state_.recent.size() >= kMinHistory) {
    const double limit = options_.loss_factor * median(state_.recent);
    state_.above_in_row = loss > limit ? state_.above_in_row + 1 : 0;
    if (state_.above_in_row >= options_.loss_patience) {
      state_.above_in_row = 0;
      verdict =
          trip("loss_diverged",
               "loss " + number_text(loss) + " of step " + std::to_string(step) + " is above " +
                   number_text(options_.loss_factor) + " × the running median for " +
                   std::to_string(options_.loss_patience) + " steps",
               loss, limit);
      if (verdict.action == Action::kSkip)
        verdict.action = Action::kApply;  // on_trip WARN: say so and go on
    }
  }
  // Losses above the limit stay out of the median, or a diverging job would lift its own limit.
  if (state_.above_in_row == 0) state_.recent.push_back(loss);
  if (state_.recent.size() > kMedianWindow) state_.recent.erase(state_.recent.begin());
  return verdict;
}

void Watchdog::rolled_back() {
  ++state_.rollbacks;
  state_.non_finite_in_row = 0;
  state_.above_in_row = 0;
}

}  // namespace dex::train
