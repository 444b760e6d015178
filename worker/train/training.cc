#include "worker/train/training.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "worker/train/host_memory.h"
#include "worker/train/selection.h"

namespace dex::train {
namespace {

using nlohmann::json;

constexpr size_t kAdviceWindow = 50;
constexpr int64_t kMaxMetricPoints = 4000;  // in the job's event log (jobs.md §1)

// A stop came in the middle of an evaluation: give it up, it is repeated after the resume.
struct EvaluationInterrupted {};

void push_bounded(std::vector<double>& values, double value) {
  values.push_back(value);
  if (values.size() > kAdviceWindow) values.erase(values.begin());
}

double seconds_since(const base::Clock& clock, int64_t begin_ms) {
  return static_cast<double>(clock.steady_ms() - begin_ms) / 1000.0;
}

std::string fixed(double value, int digits = 4) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

// JSON has no NaN; protobuf's JSON takes the word.
json float_or_nan(const std::optional<double>& value) {
  return value ? json(*value) : json("NaN");
}

}  // namespace

Training::Training(const Parts& parts)
    : parts_(parts),
      updater_(parts.llama, parts.adaptation, parts.parameters, parts.optimizer,
               {parts.resolved.micro_batch_size, parts.spec.hyperparameters.max_grad_norm}),
      watchdog_(parts.spec.watchdog) {
  saved_ms_ = parts_.clock.steady_ms();
}

void Training::begin(const evaluate::HeadSets& heads, const std::string& selection_report) {
  if (parts_.spec.dex.has_branch()) {
    masks_.emplace(heads, static_cast<int32_t>(parts_.llama.config().heads),
                   mask_ramp(parts_.resolved.updates));
    state_.selection = selection_report;
  }
  set_branch(0);
}

void Training::resume(TrainState state, const std::filesystem::path& from) {
  state_ = std::move(state);
  good_checkpoint_ = from;
  saved_step_ = state_.step;
  watchdog_.restore(state_.watchdog);
  if (parts_.spec.dex.has_branch()) {
    masks_.emplace(evaluate::HeadSets(state_.masks.size()),
                   static_cast<int32_t>(parts_.llama.config().heads),
                   mask_ramp(parts_.resolved.updates));
    masks_->restore(state_.masks);
  }
  set_branch(state_.step);
}

void Training::set_branch(int64_t t) {
  model::set_lambda(parts_.adaptation, t);
  if (!masks_) return;
  for (size_t l = 0; l < parts_.adaptation.layers.size(); ++l) {
    parts_.adaptation.layers[l].mask =
        at::tensor(masks_->layer(static_cast<int64_t>(l), t), at::kFloat);
  }
}

void Training::run() {
  while (true) {
    boundary();
    if (state_.step >= parts_.resolved.updates) return;
    update();
  }
}

void Training::boundary() {
  parts_.controls.poll();
  if (evaluation_due()) {
    try {
      evaluate();
    } catch (const EvaluationInterrupted&) {
    }
  }
  const auto stop = parts_.controls.stop();
  if (state_.step >
      0) {  // before the first update there is nothing that a fresh start would not have
    const auto request = parts_.controls.take_checkpoint_request();
    if (request || stop || checkpoint_due()) save(request.value_or(""));
  }
  if (stop) throw Stopped(*stop, "stopped on request at step " + std::to_string(state_.step));
}

bool Training::evaluation_due() const {
  if (parts_.held_out.empty() || state_.last_evaluation == state_.step) return false;
  return state_.step % parts_.resolved.evaluate_every == 0 ||
         state_.step == parts_.resolved.updates;
}

bool Training::checkpoint_due() const {
  if (saved_step_ == state_.step) return false;
  if (state_.step == parts_.resolved.updates || state_.step % parts_.resolved.checkpoint_every == 0)
    return true;
  return seconds_since(parts_.clock, saved_ms_) >= parts_.spec.checkpoints.every_seconds;
}

AdamW::Rates Training::rates() const {
  const Hyperparameters& h = parts_.spec.hyperparameters;
  const double factor = learning_rate_factor(h.schedule, state_.step, parts_.resolved.updates,
                                             parts_.resolved.warmup);
  return {h.learning_rate * factor, h.branch_learning_rate * factor,
          h.lambda_learning_rate * factor};
}

double Training::lambda_mean() const {
  const auto values = model::lambda_values(parts_.adaptation);
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

void Training::update() {
  if (masks_ && reselects_at(state_.step, parts_.spec.reselect_every, parts_.resolved.updates))
    reselect();
  const int64_t begin_ms = parts_.clock.steady_ms();
  set_branch(state_.step);
  const DataPlan::Update data = parts_.plan.update(state_.step);
  const auto gradients =
      updater_.accumulate(data.packs, parts_.examples, [&] { parts_.controls.poll(); });
  const Watchdog::Verdict verdict = watchdog_.check(state_.step, gradients.loss, gradients.norm);
  const bool applies = verdict.action == Watchdog::Action::kApply;
  if (applies) updater_.apply(gradients, rates());
  state_.watchdog = watchdog_.state();
  if (!verdict.code.empty()) judge(verdict);
  if (verdict.action == Watchdog::Action::kRollback) return;

  report_update(gradients, data, seconds_since(parts_.clock, begin_ms));
  ++state_.step;
  end_pass(data);
  parts_.session.progress(Phase::kTraining, progress());
}

void Training::judge(const Watchdog::Verdict& verdict) {
  const char* action = verdict.action == Watchdog::Action::kSkip       ? "SKIP"
                       : verdict.action == Watchdog::Action::kRollback ? "ROLLBACK"
                       : verdict.action == Watchdog::Action::kFail     ? "FAIL"
                                                                       : "WARN";
  const bool can_go_back = !good_checkpoint_.empty();
  const bool fails = verdict.action == Watchdog::Action::kFail ||
                     (verdict.action == Watchdog::Action::kRollback && !can_go_back);
  json data = {{"kind", verdict.code}, {"step", state_.step}, {"action", fails ? "FAIL" : action}};
  if (std::isfinite(verdict.value)) data["value"] = verdict.value;
  if (verdict.action == Watchdog::Action::kRollback && can_go_back) {
    // "step-<n>": the only name a checkpoint's directory has.
    data["rolledBackTo"] = std::stoll(good_checkpoint_.filename().string().substr(5));
  }
  parts_.session.event({fails ? Event::Level::kError : Event::Level::kWarn, "watchdog",
                        verdict.message, data.dump()});
  if (fails) {
    const std::string last = can_go_back
                                 ? "; last good checkpoint: " + good_checkpoint_.filename().string()
                                 : "; there is no checkpoint to go back to";
    throw Failure(Exit::kNonFinite, verdict.code, verdict.message + last);
  }
  if (verdict.action == Watchdog::Action::kRollback) roll_back(verdict);
}

void Training::roll_back(const Watchdog::Verdict& verdict) {
  LoadedCheckpoint loaded =
      load_checkpoint(good_checkpoint_, "", parts_.identity, parts_.parameters);
  parts_.parameters.copy_values_from(loaded.values);
  parts_.optimizer.restore(loaded.first_moment, loaded.second_moment, loaded.optimizer_updates);
  watchdog_.rolled_back();
  const Watchdog::State counters = watchdog_.state();
  resume(std::move(loaded.state), good_checkpoint_);
  // What was skipped and rolled back stays counted, or a job could go back for ever.
  watchdog_.restore(counters);
  state_.watchdog = counters;
}

void Training::reselect() {
  parts_.session.progress(Phase::kSelectingHeads, progress());
  set_branch(state_.step);
  const evaluate::HeadSets present = masks_->selected();
  const Selection selection =
      select(parts_.spec, parts_.llama, parts_.adaptation, parts_.examples, &present,
             updater_.cross_entropy(), [&] { parts_.controls.poll(); });
  masks_->change(selection.heads, state_.step);
  state_.masks = masks_->table();
  json log = json::parse(state_.selection);
  log.push_back(json::parse(selection_report(parts_.spec, selection, state_.step)));
  state_.selection = log.dump();
  parts_.session.event({Event::Level::kInfo, "head_selection_complete",
                        "heads selected again before step " + std::to_string(state_.step + 1),
                        selection_event(parts_.spec, selection, state_.step)});
}

void Training::evaluate() {
  parts_.session.progress(Phase::kEvaluating, progress());
  const int64_t begin_ms = parts_.clock.steady_ms();
  set_branch(state_.step);
  evaluate::BranchMeter meter(parts_.adaptation);
  const auto held_out = evaluate::held_out_loss(
      parts_.llama, parts_.adaptation, parts_.held_out, updater_.cross_entropy(),
      [&] {
        parts_.controls.poll();
        if (parts_.controls.stop()) throw EvaluationInterrupted{};
      },
      meter.observer());
  record_evaluation(held_out, meter.result());
  if (state_.step > 0) speed_.pause(seconds_since(parts_.clock, begin_ms));
}

void Training::record_evaluation(const evaluate::HeldOut& held_out,
                                 const evaluate::BranchEffect& effect) {
  state_.last_evaluation = state_.step;
  state_.valid_loss = held_out.loss;
  state_.branch_ratio = effect.value;
  if (state_.step == 0) state_.base_loss = held_out.loss;
  state_.valid_losses.push_back(held_out.loss);
  if (state_.window_updates > 0) {
    state_.train_losses.push_back(state_.window_loss / static_cast<double>(state_.window_updates));
  }
  state_.window_loss = 0;
  state_.window_updates = 0;
  if (!state_.best_loss || held_out.loss < *state_.best_loss) {
    state_.best_loss = held_out.loss;
    state_.best_step = state_.step;
  }

  json data = {{"step", state_.step},
               {"validLoss", held_out.loss},
               {"tokenAccuracy", held_out.token_accuracy},
               {"tokens", held_out.labels},
               {"branchRatio", effect.value}};
  std::string message =
      "held-out loss " + fixed(held_out.loss) + " at step " + std::to_string(state_.step);
  if (state_.step == 0) message += " (the base model)";
  parts_.session.event({Event::Level::kInfo, "eval_complete", message, data.dump()});

  json lambda = json::array(), ratio = json::array();
  for (const auto& layer : effect.layers) {
    lambda.push_back(layer.lambda);
    ratio.push_back(float_or_nan(layer.ratio));
  }
  data["lambda"] = lambda;
  data["branchRatioByLayer"] = ratio;
  parts_.metrics.line(data.dump());
  if (masks_ && state_.step > 0) {
    const json by_layer = {{"step", state_.step},
                           {"epoch", figures_.epoch},
                           {"trainLoss", float_or_nan(figures_.train_loss)},
                           {"lambdaMean", lambda_mean()},
                           {"lambda", lambda},
                           {"branchRatio", ratio}};
    parts_.session.event({Event::Level::kInfo, "metrics", "", by_layer.dump()});
  }
  if (state_.base_loss && state_.step > 0) {
    const double share =
        masks_ ? evaluate::selected_ratio(masks_->selected(),
                                          static_cast<int32_t>(parts_.llama.config().heads))
               : 0;
    advise(degraded(*state_.base_loss, held_out.loss, state_.step, parts_.spec, parts_.resolved,
                    share));
  }
  advise(overfitting(state_.valid_losses, state_.train_losses));
}

void Training::save(const std::string& request) {
  const bool again = saved_step_ == state_.step && parts_.checkpoints.last() &&
                     parts_.checkpoints.last()->step == state_.step;
  SavedCheckpoint saved;
  if (again) {
    saved = *parts_.checkpoints.last();
    if (request.empty()) return;
  } else {
    if (saved_step_ == state_.step && request.empty()) return;  // resumed here and not moved since
    parts_.session.progress(Phase::kSavingCheckpoint, progress());
    if (!at::isfinite(parts_.parameters.values()).all().item<bool>()) {
      throw Failure(Exit::kNonFinite, "non_finite_loss",
                    "a trained weight is not finite after step " + std::to_string(state_.step) +
                        "; not saved");
    }
    if (masks_) state_.masks = masks_->table();
    const int64_t begin_ms = parts_.clock.steady_ms();
    const bool best = state_.best_step == state_.step;
    saved = parts_.checkpoints.save(state_, parts_.parameters, parts_.optimizer, best);
    saved_step_ = state_.step;
    saved_ms_ = parts_.clock.steady_ms();
    good_checkpoint_ = saved.path;
    speed_.pause(seconds_since(parts_.clock, begin_ms));
    const json data = {{"checkpoint", saved.path.filename().string()},
                       {"step", saved.step},
                       {"bytes", std::to_string(saved.bytes)},
                       {"isBest", best},
                       {"verified", true}};
    parts_.session.event(
        {Event::Level::kInfo, "checkpoint_save",
         "saved " + saved.path.filename().string() + (best ? " (best so far)" : ""), data.dump()});
  }
  parts_.session.checkpoint({request, saved.path.string(), saved.manifest_sha256, saved.step,
                             saved.bytes, saved.seconds, ""});
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
  if (std::isfinite(gradients.loss) && std::isfinite(gradients.norm)) {
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
    json point = {{"step", step},
                  {"epoch", data.passes_done},
                  {"trainLoss", float_or_nan(figures_.train_loss)},
                  {"gradNorm", float_or_nan(figures_.grad_norm)},
                  {"learningRate", *figures_.learning_rate},
                  {"trainedTokens", std::to_string(state_.trained_tokens)},
                  {"tokensPerSecond", speed_.tokens_per_second()},
                  {"lambdaMean", *figures_.lambda_mean}};
    parts_.session.event({Event::Level::kInfo, "metrics", "", point.dump()});
    point["stepSeconds"] = seconds;
    parts_.metrics.line(point.dump());
  }
  advise(unstable(state_.recent_losses, state_.recent_norms, parts_.resolved));
}

void Training::end_pass(const DataPlan::Update& data) {
  if (!data.ends_pass) return;
  const double mean =
      state_.pass_updates > 0 ? state_.pass_loss / static_cast<double>(state_.pass_updates) : 0;
  const json event = {
      {"epoch", data.pass + 1}, {"meanLoss", mean}, {"tokens", std::to_string(state_.pass_tokens)}};
  parts_.session.event({Event::Level::kInfo, "epoch_complete",
                        "pass " + std::to_string(data.pass + 1) + " done, mean loss " + fixed(mean),
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
  const int64_t left = parts_.resolved.updates - state_.step;
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
  parts_.session.event(
      {Event::Level::kWarn, "advice", advice->evidence + ": " + advice->suggestion, data.dump()});
}

}  // namespace dex::train
