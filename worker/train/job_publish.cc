// The end of a job: what was trained becomes an artefact that reads back.
#include <nlohmann/json.hpp>

#include "services/base/files.h"
#include "worker/evaluate/branch_effect.h"
#include "worker/evaluate/learning_dynamics.h"
#include "worker/train/advice.h"
#include "worker/train/disk_failure.h"
#include "worker/train/host_memory.h"
#include "worker/train/job_run.h"
#include "worker/train/number_text.h"
#include "worker/train/publish.h"
#include "worker/train/selection_report.h"

namespace dex::train::detail {

using nlohmann::json;

namespace {

// A range over a part of the updates would pass for that of all.
std::optional<double> gradient_range_of(const TrainState& state, int64_t warmup) {
  if (static_cast<int64_t>(state.grad_norms.size()) != state.step) return std::nullopt;
  return evaluate::gradient_range(state.grad_norms, warmup);
}

std::string folding_text(const model::DexOptions& options,
                         const std::optional<model::Certificate>& folded) {
  if (folded)
    return "Folded, it differs by at most " + number_text(folded->largest) + " in a logit";
  const std::string reason = model::not_foldable(options);
  return reason.empty() ? "It is a whole model, with nothing to fold" : "Its " + reason;
}

}  // namespace

std::vector<evaluate::SupervisedBatch> Job::effect_batches() const {
  const auto& source = data_.validation.empty() ? data_.train : data_.validation;
  return in_batches(enough_documents(source, kEffectTokens));
}

std::string Job::metrics_json(const Published& published) const {
  const TrainState& state = training_->state();
  json out = {{"steps", state.step},
              {"trained_tokens", state.trained_tokens},
              {"trained_parameters", parameters_->trained()},
              {"anneal_steps", resolved_.anneal_steps},
              {"seed", spec_.seed}};
  if (anneals(spec_)) {
    out["anneal_ratio"] =
        static_cast<double>(resolved_.anneal_steps) / static_cast<double>(resolved_.updates);
  }
  if (spec_.goes_on()) {
    out["start_adapter"] = spec_.start_adapter;
    out["start_adapter_sha256"] = spec_.start_adapter_sha256;
  }
  if (spec_.early_stopping.enabled) {
    out["early_stopped"] = state.early.stopped;
    out["served_step"] = training_->served_step();
  }
  if (state.base_loss) out["base_valid_loss"] = *state.base_loss;
  if (state.valid_loss) out["valid_loss"] = *state.valid_loss;
  if (state.best_loss) {
    out["best_valid_loss"] = *state.best_loss;
    out["best_step"] = state.best_step;
  }
  if (published.base_kl) out["base_kl"] = *published.base_kl;
  if (published.gradient_range) out["gradient_range"] = *published.gradient_range;
  return out.dump();
}

void Job::report_effect(const evaluate::BranchEffect& effect) {
  if (effect.verdict == evaluate::BranchEffect::Verdict::kNotApplicable) return;
  json layers = json::array();
  for (const auto& layer : effect.layers) {
    json entry = {{"cosine", layer.cosine}, {"lambda", layer.lambda}};
    if (layer.ratio) entry["ratio"] = *layer.ratio;
    layers.push_back(entry);
  }
  const std::string verdict = evaluate::name(effect.verdict);
  const json data = {{"verdict", "VERDICT_" + verdict},
                     {"value", effect.value},
                     {"perLayer", layers},
                     {"ceDelta", effect.ce_delta},
                     {"tokens", std::to_string(effect.tokens)}};
  session_.event({Event::Level::kInfo, "branch_verdict",
                  "branch_effect " + number_text(effect.value) + ": " + verdict, data.dump()});
  training_->advise(ineffective(effect, spec_, resolved_, !data_.validation.empty()));
}

void Job::write_selection(const std::string& log) const {
  with_disk_failures([&] {
    throw_if_bad(
        base::write_file_atomically(spec_.attempt_dir / "head_selection.json", log, 0644, files_));
    throw_if_bad(base::write_file_atomically(spec_.attempt_dir / "head_selection.svg",
                                             selection_picture(log), 0644, files_));
  });
}

void Job::report_complete() {
  const TrainState& state = training_->state();
  const int64_t served = training_->served_step();
  const json complete = {{"steps", state.step},
                         {"trainedTokens", std::to_string(state.trained_tokens)},
                         {"durationSeconds", clock_.seconds_since(begin_ms_)},
                         {"servedStep", served},
                         {"earlyStopped", state.early.stopped}};
  std::string text =
      std::to_string(state.step) + " updates, " + std::to_string(state.trained_tokens) + " tokens";
  if (state.early.stopped)
    text += ", stopped early: " + std::to_string(resolved_.updates) + " were planned";
  if (served != state.step)
    text += "; the best weights are published, those of step " + std::to_string(served);
  session_.event({Event::Level::kInfo, "training_complete", text, complete.dump()});
}

Published Job::publish() {
  const TrainState& state = training_->state();
  training_->choose_published();
  report_complete();

  enter(Phase::kExporting);
  // What is published after n updates uses t = n, a best checkpoint too (method.md §1).
  training_->set_branch(training_->served_step());
  kernels::LinearCrossEntropy cross_entropy;
  Published out;
  out.branch_effect = evaluate::measure_branch_effect(*llama_, adaptation_, effect_batches(),
                                                      cross_entropy, [this] { controls_.poll(); });
  judge_gates(out);
  out.gradient_range = gradient_range_of(state, resolved_.warmup);
  const std::filesystem::path directory = spec_.attempt_dir / "final";
  export_artefact(directory, spec_, identity_, base_, adaptation_, metrics_json(out),
                  out.branch_effect);

  enter(Phase::kVerifying);
  const auto verified = verify_artefact(directory, *llama_, base_, adaptation_, identity_,
                                        first_documents(data_.train, kEffectTokens));
  const ArtefactSize size = artefact_size(directory);
  json exported = {{"bytes", std::to_string(size.bytes)}, {"contentSha256", size.content_sha256}};
  if (verified.folded) exported["maxAbsLogitDiff"] = verified.folded->largest;
  if (verified.folded && !verified.folded->within_bound()) {
    warn("fold_inexact: folded, the trained model differs by up to " +
         number_text(verified.folded->largest) +
         " in a logit, above the 1e-4 that rounding explains; compare the folded model with the " +
         (spec_.dex.publishes_model() ? "losses of this job" : "adapter") + " before using it");
  }
  session_.event({Event::Level::kInfo, "export_complete",
                  "final/ reads back as trained. " + folding_text(spec_.dex, verified.folded),
                  exported.dump()});

  enter(Phase::kFinalizing);
  report_prefix();
  if (spec_.dex.has_branch()) write_selection(state.selection);
  out.path = directory.string();
  out.manifest_sha256 = size.content_sha256;
  out.bytes = size.bytes;
  out.trained_tokens = state.trained_tokens;
  out.trained_parameters = parameters_->trained();
  out.added_parameters = added_parameters();
  out.base_valid_loss = state.base_loss;
  out.valid_loss = state.valid_loss;
  out.best_valid_loss = state.best_loss;
  if (state.best_loss) out.best_step = state.best_step;
  out.served_step = training_->served_step();
  out.early_stopped = state.early.stopped;
  out.tokens_per_second = training_->speed().overall_tokens_per_second();
  out.base_model = spec_.model_name;
  if (spec_.goes_on()) out.start_adapter = spec_.start_adapter;
  out.base_weights_sha256 = identity_.base_weights_sha256;
  out.tokenizer_sha256 = identity_.tokenizer_sha256;
  out.chat_template_sha256 = identity_.chat_template_sha256;
  out.method = model::method_name(spec_.dex.train);
  out.form = model::name(spec_.dex.form);
  if (spec_.dex.has_projection()) out.projection = model::name(spec_.dex.projection);
  out.train = model::name(spec_.dex.train);
  out.artifact_class = model::artifact_class(spec_.dex, config_);
  report_effect(out.branch_effect);
  out.peak_host_memory_bytes = peak_host_memory();
  return out;
}

}  // namespace dex::train::detail
