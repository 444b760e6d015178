#include "client/cli/study_learning.h"

#include <cmath>
#include <limits>

namespace dex::cli {

namespace {

constexpr double kKeep = 0.98;

// The next running average; the first loss starts it.
double averaged(const std::optional<double>& before, double loss) {
  return before ? kKeep * *before + (1 - kKeep) * loss : loss;
}

}  // namespace

void LossCurve::take(const v1::FineTuningEvent& event) {
  if (event.has_training_start()) forget_after(event.training_start().resumed_from_step());
  if (event.has_watchdog()) {
    const auto& trip = event.watchdog();
    if (trip.action() == "ROLLBACK") forget_after(trip.rolled_back_to());
    if (trip.action() == "SKIP") skipped_ = trip.step() + 1;
  }
  if (!event.has_metrics()) return;
  const auto& metrics = event.metrics();
  // The point of a skipped update repeats the loss of the one before.
  losses_[metrics.step()] =
      metrics.step() == skipped_ ? std::numeric_limits<double>::quiet_NaN() : metrics.train_loss();
}

void LossCurve::forget_after(uint32_t step) {
  losses_.erase(losses_.upper_bound(step), losses_.end());
  skipped_ = 0;
}

std::vector<double> LossCurve::losses() const {
  std::vector<double> out;
  for (const auto& [step, loss] : losses_) {
    if (step != out.size() + 1) return {};
    out.push_back(loss);
  }
  return out;
}

std::optional<double> final_average_loss(std::span<const double> losses) {
  std::optional<double> average;
  for (const double loss : losses) {
    if (std::isfinite(loss)) average = averaged(average, loss);
  }
  return average;
}

std::optional<int64_t> steps_to_loss(std::span<const double> losses, double target) {
  std::optional<double> average;
  for (size_t u = 0; u < losses.size(); ++u) {
    if (!std::isfinite(losses[u])) continue;
    average = averaged(average, losses[u]);
    if (*average < target) return static_cast<int64_t>(u);
  }
  return std::nullopt;
}

}  // namespace dex::cli
