// The base-capability guard of Training: KL to the base on a probe set, at evaluations and of what
// is published.
#include <ATen/ATen.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "worker/train/number_text.h"
#include "worker/train/training.h"

namespace dex::train {

bool Training::guard_due() const {
  const BaseGuardPolicy& guard = parts_.spec.base_guard;
  if (!guard.on()) return false;
  // The number of this evaluation, from 0; a checkpoint keeps the losses of all before it.
  const auto evaluation = static_cast<int64_t>(state_.valid_losses.size());
  return evaluation % guard.every_evals == 0 || state_.step == parts_.resolved.updates;
}

const evaluate::BaseDivergence& Training::served_divergence() {
  if (!divergence_ || divergence_step_ != served_step()) {
    take_divergence(parts_.probe->measure(parts_.adaptation, [this] { parts_.controls.poll(); }),
                    served_step());
  }
  return *divergence_;
}

void Training::take_divergence(evaluate::BaseDivergence found, int64_t step) {
  divergence_ = std::move(found);
  divergence_step_ = step;
  const BaseGuardPolicy& guard = parts_.spec.base_guard;
  const double kl = divergence_->kl;
  const bool trips = guard.on() && !(kl <= guard.kl_max);  // also if it is not a number
  const auto number = [](double value) {                   // protobuf's JSON takes the word
    return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json("NaN");
  };
  std::string message = "KL to the base " + number_text(kl) + " nats a token on the probe set";
  if (trips) message += ", above kl_max " + number_text(guard.kl_max);
  message += " at step " + std::to_string(step) + "; probe loss " + number_text(divergence_->loss) +
             ", the base's " + number_text(divergence_->base_loss);
  const char* action = trips ? (guard.fails ? "FAIL" : "WARN") : "";
  const nlohmann::json data = {{"kl", number(kl)},
                               {"limit", guard.kl_max},
                               {"probeLossBase", number(divergence_->base_loss)},
                               {"probeLoss", number(divergence_->loss)},
                               {"step", step},
                               {"tokens", std::to_string(divergence_->tokens)},
                               {"action", action}};
  const auto level = !trips        ? Event::Level::kInfo
                     : guard.fails ? Event::Level::kError
                                   : Event::Level::kWarn;
  parts_.session.event({level, "base_guard", message, data.dump()});
  const nlohmann::json line = {{"step", step},
                               {"baseKl", number(kl)},
                               {"probeLossBase", number(divergence_->base_loss)},
                               {"probeLoss", number(divergence_->loss)}};
  parts_.metrics.line(line.dump());
  if (!trips || !guard.fails) return;
  throw Failure(Exit::kGuard, "base_guard_tripped",
                message + ". Lower the learning rates or train for fewer updates, or raise kl_max",
                "watchdog.base_guard.kl_max");
}

}  // namespace dex::train
