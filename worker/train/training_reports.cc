// What Training measures, saves and says; the loop itself is in training.cc.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "worker/train/host_memory.h"
#include "worker/train/number_text.h"
#include "worker/train/training.h"

namespace dex::train {
namespace {

using nlohmann::json;

constexpr size_t kAdviceWindow = 50;
constexpr int64_t kMaxMetricPoints = 4000;  // in the job's event log (jobs.md §1)
constexpr int64_t kMaxRowReports = 50;      // likewise: each is a few kilobytes

void push_bounded(std::vector<double>& values, double value) {
  values.push_back(value);
  if (values.size() > kAdviceWindow) values.erase(values.begin());
}

// JSON has no NaN; protobuf's JSON takes the word.
json float_or_nan(const std::optional<double>& value) {
  return value ? json(*value) : json("NaN");
}

// Metrics (events.proto) of what was just trained or evaluated, without the fields by layer.
json point(const Progress& figures) {
  return {{"step", figures.step},
          {"epoch", figures.epoch},
          {"trainLoss", float_or_nan(figures.train_loss)},
          {"gradNorm", float_or_nan(figures.grad_norm)},
          {"learningRate", figures.learning_rate.value_or(0)},
          {"trainedTokens", std::to_string(figures.trained_tokens)},
          {"tokensPerSecond", figures.tokens_per_second},
          {"lambdaMean", figures.lambda_mean.value_or(0)}};
}

bool starts_as_base(const JobSpec& spec) {
  return spec.dex.start == model::Start::kIdentity && !spec.goes_on();
}

std::string start_text(const JobSpec& spec) {
  if (spec.goes_on()) return " (" + spec.start_adapter + ")";
  return starts_as_base(spec) ? " (the base model)" : " (literal start)";
}

}  // namespace

void Training::evaluate() {
  parts_.session.progress(Phase::kEvaluating, progress());
  const int64_t begin_ms = parts_.clock.steady_ms();
  set_branch(state_.step);
  evaluate::BranchMeter meter(parts_.adaptation);
  const auto between = [&] {
    parts_.controls.poll();
    if (parts_.controls.stop()) throw EvaluationInterrupted{};
  };
  const auto held_out =
      evaluate::held_out_loss(parts_.llama, parts_.adaptation, parts_.held_out,
                              updater_.cross_entropy(), between, meter.observer());
  // A literal start is not the base (method.md §3.5), nor is an adapter: what the job is compared
  // with is measured apart.
  if (state_.step == 0 && !starts_as_base(parts_.spec)) {
    state_.base_loss =
        evaluate::held_out_loss(parts_.llama, {}, parts_.held_out, updater_.cross_entropy(), [&] {
          parts_.controls.poll();
        }).loss;
  }
  // Before anything is recorded: an evaluation that is interrupted is repeated as a whole.
  std::optional<evaluate::BaseDivergence> divergence;
  if (guard_due()) divergence = parts_.probe->measure(parts_.adaptation, between);
  record_evaluation(held_out, meter.result());
  if (divergence) take_divergence(*std::move(divergence), state_.step);
  if (state_.step > 0) speed_.pause(parts_.clock.seconds_since(begin_ms));
}

void Training::record_evaluation(const evaluate::HeldOut& held_out,
                                 const evaluate::BranchEffect& effect) {
  state_.last_evaluation = state_.step;
  state_.valid_loss = held_out.loss;
  state_.branch_ratio = effect.value;
  if (state_.step == 0 && starts_as_base(parts_.spec)) state_.base_loss = held_out.loss;
  state_.valid_losses.push_back(held_out.loss);
  if (state_.window_updates > 0) {
    state_.train_losses.push_back(state_.window_loss / static_cast<double>(state_.window_updates));
  }
  state_.window_loss = 0;
  state_.window_updates = 0;
  const bool publishable = mixed_in() && (!masks_ || masks_->settled(state_.step));
  const bool best = early_.take(state_.step, held_out.loss, publishable);
  state_.early = early_.state();
  // At the last update nothing is left to be cut short.
  if (state_.step >= parts_.resolved.updates) state_.early.stopped = false;
  take_best(held_out.loss);
  if (best && masks_) state_.best_masks = masks_->table();
  if (best && early_.keeps_best()) best_values_ = parts_.parameters.values().clone();

  json data = {{"step", state_.step},
               {"validLoss", held_out.loss},
               {"tokenAccuracy", held_out.token_accuracy},
               {"tokens", held_out.labels},
               {"branchRatio", effect.value}};
  std::string message =
      "held-out loss " + number_text(held_out.loss) + " at step " + std::to_string(state_.step);
  if (state_.step == 0) message += start_text(parts_.spec);
  parts_.session.event({Event::Level::kInfo, "eval_complete", message, data.dump()});

  json lambda = json::array(), ratio = json::array();
  for (const auto& layer : effect.layers) {
    lambda.push_back(layer.lambda);
    ratio.push_back(float_or_nan(layer.ratio));
  }
  data["lambda"] = lambda;
  data["branchRatioByLayer"] = ratio;
  parts_.metrics.line(data.dump());
  report_rows(held_out);
  if (masks_ && state_.step > 0) {
    json by_layer = point(progress());
    by_layer["lambdaMean"] = lambda_mean();  // as published now, not as in the update before
    by_layer["lambda"] = lambda;
    by_layer["branchRatio"] = ratio;
    parts_.session.event({Event::Level::kInfo, "metrics", "", by_layer.dump()});
  }
  if (state_.base_loss && state_.step > 0 && mixed_in()) {
    const double share =
        masks_ ? evaluate::selected_ratio(masks_->selected(),
                                          static_cast<int32_t>(parts_.llama.config().heads))
               : 0;
    advise(degraded(*state_.base_loss, held_out.loss, state_.step, parts_.spec, parts_.resolved,
                    share));
  }
  advise(overfitting(state_.valid_losses, state_.train_losses, parts_.spec));
  if (state_.early.stopped) report_early_stop();
}

// Which rows make the loss what it is. With many evaluations not of each, but of the first and the
// last one.
void Training::report_rows(const evaluate::HeldOut& held_out) {
  const int64_t every = parts_.resolved.evaluate_every;
  const int64_t evaluations = parts_.resolved.updates / every + 2;
  const int64_t stride = (evaluations + kMaxRowReports - 1) / kMaxRowReports;
  const bool last = state_.early.stopped || state_.step >= parts_.resolved.updates;
  if (!last && state_.step / every % stride != 0) return;
  if (parts_.held_out_rows.size() < held_out.documents.size()) return;
  const auto rows = parts_.held_out_rows.first(held_out.documents.size());
  std::vector<RowLoss> losses;
  for (const auto& document : held_out.documents)
    losses.push_back({document.loss, document.weight});
  const std::string file =
      parts_.spec.validation_path.empty() ? "training_file" : "validation_file";
  parts_.session.event({Event::Level::kInfo, "group_loss",
                        group_loss_text(state_.step, rows, losses),
                        group_loss_json(state_.step, rows, losses)});
  parts_.session.event({Event::Level::kInfo, "worst_rows",
                        worst_rows_text(state_.step, file, rows, losses),
                        worst_rows_json(state_.step, file, rows, losses)});
}

void Training::report_early_stop() {
  const int64_t best_step = state_.early.best_step;
  const int32_t patience = early_.options().patience;
  const double best_loss = *state_.early.best_loss;
  const json data = {{"step", state_.step},
                     {"bestStep", best_step},
                     {"bestMetric", best_loss},
                     {"patience", patience}};
  parts_.session.event({Event::Level::kInfo, "early_stopped",
                        "stopped at step " + std::to_string(state_.step) + " of " +
                            std::to_string(parts_.resolved.updates) +
                            ": no lower held-out loss in " + std::to_string(patience) +
                            " evaluations; the best is " + number_text(best_loss) + " at step " +
                            std::to_string(best_step),
                        data.dump()});
}

// What checkpoints and metrics call the best is one evaluation.
void Training::take_best(std::optional<double> loss) {
  if (early_.options().enabled) {
    state_.best_loss = state_.early.best_loss;
    state_.best_step = state_.early.best_step;
    return;
  }
  // A model on its way to its second map is none that can be published, so it is never the best.
  if (!loss || !std::isfinite(*loss) || !mixed_in()) return;
  if (state_.best_loss && *loss >= *state_.best_loss) return;
  state_.best_loss = loss;
  state_.best_step = state_.step;
}

bool Training::is_best() const {
  return state_.best_step == state_.step;
}

void Training::save(const std::string& request) {
  if (saved_step_ == state_.step && request.empty()) return;  // resumed here and not moved since
  const SavedCheckpoint* saved = parts_.checkpoints.last();
  if (!saved || saved->step != state_.step) write_checkpoint();
  offer_checkpoint(request);
}

void Training::offer_checkpoint(const std::string& request) {
  const SavedCheckpoint& saved = *parts_.checkpoints.last();
  parts_.session.checkpoint({request, saved.path.string(), saved.manifest_sha256, saved.step,
                             saved.bytes, saved.seconds, ""});
}

void Training::write_checkpoint() {
  parts_.session.progress(Phase::kSavingCheckpoint, progress());
  if (!at::isfinite(parts_.parameters.values()).all().item<bool>()) {
    throw Failure(
        Exit::kNonFinite, "non_finite_loss",
        "a trained weight is not finite after step " + std::to_string(state_.step) + "; not saved");
  }
  if (masks_) state_.masks = masks_->table();
  const int64_t begin_ms = parts_.clock.steady_ms();
  const bool best = is_best();
  // A checkpoint of the best weights has them once.
  const bool apart = best_values_.defined() && state_.early.best_step != state_.step;
  parts_.checkpoints.hold({parts_.controls.acknowledged(), parts_.controls.offered(),
                           calm_checkpoint_ ? calm_checkpoint_->path : std::filesystem::path()});
  const SavedCheckpoint saved = parts_.checkpoints.save(state_, parts_.parameters, parts_.optimizer,
                                                        apart ? best_values_ : at::Tensor(), best);
  saved_step_ = state_.step;
  saved_ms_ = parts_.clock.steady_ms();
  last_checkpoint_ = WayBack{saved.path, saved.step};
  if (state_.watchdog.above_in_row == 0) calm_checkpoint_ = last_checkpoint_;
  speed_.pause(parts_.clock.seconds_since(begin_ms));
  const std::string name = saved.path.filename().string();
  const json data = {{"checkpoint", name},
                     {"step", saved.step},
                     {"bytes", std::to_string(saved.bytes)},
                     {"isBest", best},
                     {"verified", true}};
  parts_.session.event({Event::Level::kInfo, "checkpoint_save",
                        "saved " + name + (best ? " (best so far)" : ""), data.dump()});
}

void Training::report_update(const Updater::Gradients& gradients, const DataPlan::Update& data,
                             double seconds) {
  state_.trained_tokens += gradients.tokens;
  speed_.update(seconds, gradients.tokens);
  const int64_t step = state_.step + 1;
  figures_.epoch = data.passes_done;
  figures_.step_seconds = seconds;
  figures_.learning_rate = rates()[0];
  figures_.lambda_mean = lambda_mean();
  const bool finite = std::isfinite(gradients.loss) && std::isfinite(gradients.norm);
  state_.grad_norms.push_back(finite ? gradients.norm : std::numeric_limits<double>::quiet_NaN());
  if (finite) {
    figures_.train_loss = gradients.loss;
    figures_.grad_norm = gradients.norm;
    state_.window_loss += gradients.loss;
    ++state_.window_updates;
    state_.pass_loss += gradients.loss;
    ++state_.pass_updates;
    push_bounded(state_.recent_losses, gradients.loss);
    push_bounded(state_.recent_norms, gradients.norm);
  }
  state_.pass_tokens += gradients.tokens;

  const int64_t stride = (parts_.resolved.updates + kMaxMetricPoints - 1) / kMaxMetricPoints;
  if (step % stride == 0 || step == 1 || step == parts_.resolved.updates) {
    Progress figures = progress();
    figures.step = step;
    json update = point(figures);
    parts_.session.event({Event::Level::kInfo, "metrics", "", update.dump()});
    update["stepSeconds"] = seconds;
    parts_.metrics.line(update.dump());
  }
  advise(unstable(state_.recent_losses, state_.recent_norms, parts_.spec, parts_.resolved));
}

void Training::end_pass(const DataPlan::Update& data) {
  if (!data.ends_pass) return;
  const double mean =
      state_.pass_updates > 0 ? state_.pass_loss / static_cast<double>(state_.pass_updates) : 0;
  const json event = {
      {"epoch", data.pass + 1}, {"meanLoss", mean}, {"tokens", std::to_string(state_.pass_tokens)}};
  parts_.session.event(
      {Event::Level::kInfo, "epoch_complete",
       "pass " + std::to_string(data.pass + 1) + " done, mean loss " + number_text(mean),
       event.dump()});
  state_.pass_loss = 0;
  state_.pass_updates = 0;
  state_.pass_tokens = 0;
}

Progress Training::progress() const {
  Progress out = figures_;
  out.step = state_.step;
  out.total_steps = parts_.resolved.updates;
  out.trained_tokens = state_.trained_tokens;
  out.valid_loss = state_.valid_loss;
  if (masks_) out.branch_ratio = state_.branch_ratio;
  out.tokens_per_second = speed_.tokens_per_second();
  const int64_t left = state_.early.stopped ? 0 : parts_.resolved.updates - state_.step;
  const int64_t pauses = (parts_.held_out.empty() ? 0 : left / parts_.resolved.evaluate_every) +
                         left / parts_.resolved.checkpoint_every;
  out.estimated_remaining_seconds = speed_.seconds_left(left, pauses);
  out.nonfinite_steps = state_.watchdog.skipped;
  out.host_memory_bytes = peak_host_memory();
  return out;
}

void Training::advise(const std::optional<Advice>& advice) {
  if (!advice) return;
  if (std::find(state_.advised.begin(), state_.advised.end(), advice->topic) !=
      state_.advised.end())
    return;
  state_.advised.push_back(advice->topic);
  const json data = {
      {"topic", advice->topic}, {"evidence", advice->evidence}, {"suggestion", advice->suggestion}};
  parts_.session.event({Event::Level::kWarn, "advice", advice->sentence(), data.dump()});
}

double Training::lambda_mean() const {
  auto values = model::lambda_values(parts_.adaptation);
  if (values.empty()) return 0;
  values.erase(values.begin(), values.begin() + parts_.spec.dex.first_layer);
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace dex::train
