#include "worker/train/training.h"

#include <ATen/ATen.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "worker/train/selection.h"
#include "worker/train/selection_report.h"

namespace dex::train {

using nlohmann::json;

Training::Training(const Parts& parts)
    : parts_(parts),
      updater_(parts.llama, parts.adaptation, parts.parameters, parts.optimizer,
               {parts.resolved.micro_batch_size, parts.spec.hyperparameters.max_grad_norm,
                parts.spec.seed, parts.prefix, parts.leader ? &parts.leader->group() : nullptr}),
      watchdog_(parts.spec.watchdog),
      early_(parts.spec.early_stopping) {
  saved_ms_ = parts_.clock.steady_ms();
}

void Training::begin(const evaluate::HeadSets& heads, const std::string& selection_report) {
  if (parts_.spec.dex.has_branch()) {
    masks_.emplace(heads, static_cast<int32_t>(parts_.llama.config().heads),
                   mask_ramp(parts_.resolved.updates), parts_.spec.dex.soft_floor);
    state_.selection = selection_report;
  }
  set_branch(0);
  if (parts_.leader) parts_.leader->share_state();
}

void Training::resume(TrainState state, const at::Tensor& best_values,
                      const std::filesystem::path& from) {
  state_ = std::move(state);
  early_.restore(state_.early);
  take_best(std::nullopt);  // checkpoints of before had a best of their own beside early stopping's
  best_values_ = best_values;
  if (early_.keeps_best() && state_.early.best_step == state_.step)
    best_values_ = parts_.parameters.values().clone();
  if (early_.keeps_best() && state_.early.best_step > 0 && !best_values_.defined()) {
    throw Failure(Exit::kBrokenCheckpoint, "internal",
                  "checkpoint " + from.string() + " lacks the weights of its best step " +
                      std::to_string(state_.early.best_step),
                  "checkpoint_dir");
  }
  last_checkpoint_ = WayBack{from.has_filename() ? from : from.parent_path(), state_.step};
  if (state_.watchdog.above_in_row == 0) calm_checkpoint_ = last_checkpoint_;
  divergence_.reset();
  saved_step_ = state_.step;
  watchdog_.restore(state_.watchdog);
  if (parts_.spec.dex.has_branch()) {
    masks_.emplace(evaluate::HeadSets(state_.masks.size()),
                   static_cast<int32_t>(parts_.llama.config().heads),
                   mask_ramp(parts_.resolved.updates), parts_.spec.dex.soft_floor);
    masks_->restore(state_.masks);
  }
  set_branch(state_.step);
  if (parts_.leader) parts_.leader->share_state();
}

void Training::set_branch(int64_t t) {
  model::set_lambda(parts_.adaptation, t);
  if (!masks_) return;
  // Below the first layer no floor acts either: they keep their zeros.
  for (auto l = static_cast<size_t>(parts_.spec.dex.first_layer);
       l < parts_.adaptation.layers.size(); ++l) {
    parts_.adaptation.layers[l].mask =
        at::tensor(masks_->layer(static_cast<int64_t>(l), t), at::kFloat);
  }
}

void Training::run() {
  while (true) {
    boundary();
    if (state_.step >= parts_.resolved.updates || state_.early.stopped) return;
    update();
  }
}

void Training::boundary() {
  parts_.controls.poll();
  if (evaluation_due()) {
    evaluating_ = true;
    try {
      evaluate();
    } catch (const EvaluationInterrupted&) {
    }
    evaluating_ = false;
  }
  const auto stop = parts_.controls.stop();
  // Before the first update there is nothing that a fresh start would not have.
  if (state_.step > 0) {
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
  if (state_.step == parts_.resolved.updates || state_.early.stopped ||
      state_.step % parts_.resolved.checkpoint_every == 0)
    return true;
  return parts_.clock.seconds_since(saved_ms_) >= parts_.spec.checkpoints.every_seconds;
}

AdamW::Rates Training::rates() const {
  const Hyperparameters& h = parts_.spec.hyperparameters;
  const double factor = learning_rate_factor(h.schedule, state_.step, parts_.resolved.updates,
                                             parts_.resolved.warmup);
  const double base = h.learning_rate * factor;  // LoRA's and the adapters' as well
  return {base, base, h.branch_learning_rate * factor, h.lambda_learning_rate * factor};
}

void Training::update() {
  if (masks_ && reselects_at(state_.step, parts_.spec.reselect_every, parts_.resolved.updates)) {
    evaluating_ = true;
    reselect();
    evaluating_ = false;
  }
  const int64_t begin_ms = parts_.clock.steady_ms();
  set_branch(state_.step);
  if (parts_.leader) parts_.leader->begin(state_.step);
  const DataPlan::Update data = parts_.plan.update(state_.step);
  const auto gradients = updater_.accumulate(state_.step, data.packs, parts_.examples,
                                             [&] { parts_.controls.poll(); });
  const Watchdog::Verdict verdict = watchdog_.check(state_.step, gradients.loss, gradients.norm);
  const bool applies = verdict.action == Watchdog::Action::kApply;
  if (applies && parts_.leader) parts_.leader->apply(gradients.norm, rates());
  if (applies) updater_.apply(gradients, rates());
  state_.watchdog = watchdog_.state();
  if (!verdict.code.empty()) judge(verdict);
  if (verdict.action == Watchdog::Action::kRollback) return;

  report_update(gradients, data, parts_.clock.seconds_since(begin_ms));
  ++state_.step;
  end_pass(data);
  parts_.session.progress(Phase::kTraining, progress());
}

const std::optional<WayBack>& Training::way_back(const Watchdog::Verdict& verdict) const {
  return verdict.code == "loss_diverged" ? calm_checkpoint_ : last_checkpoint_;
}

void Training::judge(const Watchdog::Verdict& verdict) {
  const char* action = verdict.action == Watchdog::Action::kSkip       ? "SKIP"
                       : verdict.action == Watchdog::Action::kRollback ? "ROLLBACK"
                       : verdict.action == Watchdog::Action::kFail     ? "FAIL"
                                                                       : "WARN";
  const std::optional<WayBack> checkpoint = way_back(verdict);
  const bool fails = verdict.action == Watchdog::Action::kFail ||
                     (verdict.action == Watchdog::Action::kRollback && !checkpoint);
  json data = {{"kind", verdict.code}, {"step", state_.step}, {"action", fails ? "FAIL" : action}};
  if (std::isfinite(verdict.value)) data["value"] = verdict.value;
  if (verdict.action == Watchdog::Action::kRollback && checkpoint)
    data["rolledBackTo"] = checkpoint->step;
  parts_.session.event({fails ? Event::Level::kError : Event::Level::kWarn, "watchdog",
                        verdict.message, data.dump()});
  if (fails) {
    const std::string last = checkpoint
                                 ? "; last good checkpoint: " + checkpoint->path.filename().string()
                                 : "; there is no checkpoint to go back to";
    throw Failure(Exit::kNonFinite, verdict.code, verdict.message + last);
  }
  if (verdict.action == Watchdog::Action::kRollback) roll_back(checkpoint->path);
}

void Training::roll_back(const std::filesystem::path& checkpoint) try {
  LoadedCheckpoint loaded = load_checkpoint(checkpoint, "", parts_.identity, parts_.parameters);
  parts_.parameters.copy_values_from(loaded.values);
  parts_.optimizer.restore(loaded.first_moment, loaded.second_moment, loaded.optimizer_updates);
  watchdog_.rolled_back();
  const Watchdog::State counters = watchdog_.state();
  resume(std::move(loaded.state), loaded.best_values, checkpoint);
  // What was skipped and rolled back stays counted, or a job could go back for ever.
  watchdog_.restore(counters);
  state_.watchdog = counters;
  parts_.checkpoints.go_back(state_.step, state_.best_step);
  // The job may point to a checkpoint of the way that is left: another attempt would go on there,
  // in the middle of the rise, and would not know that one going back is spent.
  write_checkpoint();
  offer_checkpoint("");
} catch (const Failure& failure) {
  if (failure.exit() != Exit::kBrokenCheckpoint) throw;
  // The one that the job points to may be whole: that is for the next attempt to find out.
  throw Failure(Exit::kRetryable, failure.code(), failure.what());
}

void Training::choose_published() {
  if (!best_values_.defined() || state_.early.best_step == state_.step) return;
  parts_.parameters.copy_values_from(best_values_);
  if (masks_) masks_->restore(state_.best_masks);
  served_step_ = state_.early.best_step;
  state_.valid_loss = state_.early.best_loss;
}

void Training::reselect() {
  parts_.session.progress(Phase::kSelectingHeads, progress());
  set_branch(state_.step);
  const evaluate::HeadSets present = masks_->selected();
  Selection selection = select(parts_.spec, parts_.llama, parts_.adaptation, parts_.measured,
                               &present, updater_.cross_entropy(), [&] { parts_.controls.poll(); });
  advise(selection_share(parts_.spec.heads, selection.scores, selection.ratio));
  const bool kept = keep_some(parts_.spec, present, selection);
  masks_->change(selection.heads, state_.step);
  state_.masks = masks_->table();
  json log = json::parse(state_.selection);
  log.push_back(json::parse(selection_report(parts_.spec, selection, state_.step)));
  state_.selection = log.dump();
  parts_.session.event({Event::Level::kInfo, "head_selection_complete",
                        "heads selected again before step " + std::to_string(state_.step + 1) +
                            (kept ? ": none by the thresholds, so those from before stay" : ""),
                        selection_event(parts_.spec, selection, state_.step)});
}

}  // namespace dex::train
