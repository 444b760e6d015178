#include "worker/train/job.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "services/base/files.h"
#include "worker/kernels/gemm.h"
#include "worker/model/second_map.h"
#include "worker/train/advice.h"
#include "worker/train/group_report.h"
#include "worker/train/host_memory.h"
#include "worker/train/job_run.h"
#include "worker/train/selection_report.h"
#include "worker/train/warm_start.h"

namespace dex::train {
namespace detail {

using nlohmann::json;

namespace {

constexpr const char* kNeedsHeldOut =
    "needs held-out rows: give a validation_file, or a validation_split above 0";

// The adapter's heads as a rule that measures nothing.
evaluate::SelectionRule heads_of(const model::Adapter& adapter) {
  evaluate::SelectionRule rule;
  rule.criterion = evaluate::Criterion::kExplicit;
  for (const auto& heads : adapter.selected_heads)
    rule.heads.emplace_back(heads.begin(), heads.end());
  return rule;
}

}  // namespace

Published Job::run() try { return whole(); } catch (const std::exception& error) {
  if (ending_of(error).exit != Exit::kOutOfMemory) throw;
  throw report_out_of_memory();
}

Published Job::whole() {
  begin_ms_ = clock_.steady_ms();
  load_model();
  load_data();
  if (spec_.heads_only) {
    place_ = MemoryPlace::kEvaluation;
    return publish_heads();
  }
  plan();
  join_ranks();
  if (spec_.ranks.follows()) {
    follow();
    return {};
  }
  place_ = MemoryPlace::kEvaluation;
  select_heads();
  make_probe();
  place_ = MemoryPlace::kOptimizer;
  prepare_training();
  if (spec_.probe_only) return publish_probe();
  if (spec_.hold) end_checked();
  trains_ = true;
  training_->run();
  if (leader_) leader_->end();  // what is left is one process's work
  trains_ = false;
  place_ = MemoryPlace::kEvaluation;
  return publish();
}

void Job::enter(Phase phase) {
  Progress progress;
  progress.total_steps = resolved_.updates;
  if (training_) {
    progress.step = training_->state().step;
    progress.trained_tokens = training_->state().trained_tokens;
    progress.valid_loss = training_->state().valid_loss;
  }
  progress.host_memory_bytes = peak_host_memory();
  session_.progress(phase, progress);
  if (!training_) controls_.stop_here();
}

void Job::warn(const std::string& text) {
  const auto colon = text.find(": ");
  const json data = {{"code", text.substr(0, colon)}, {"detail", text.substr(colon + 2)}};
  session_.event({Event::Level::kWarn, "warning", text, data.dump()});
}

void Job::load_model() {
  enter(Phase::kLoadingModel);
  try {
    config_ = model::load_config(spec_.model_dir);
    identity_.base_weights_sha256 = model::base_weights_sha256(spec_.model_dir);
    base_ = model::load_weights(spec_.model_dir, config_,
                                {.dtype = at::kFloat, .refuse_non_finite = true});
  } catch (const std::runtime_error& error) {
    throw Failure(Exit::kBrokenInput, "internal", std::string("base model: ") + error.what(),
                  "model");
  }
  if (!spec_.base_weights_sha256.empty() &&
      spec_.base_weights_sha256 != identity_.base_weights_sha256) {
    throw Failure(Exit::kBrokenInput, "internal",
                  "base model " + spec_.model_dir.string() + " has base_weights_sha256 " +
                      identity_.base_weights_sha256 + ", expected " + spec_.base_weights_sha256,
                  "model");
  }
  if (const auto refusal = model::branch_refusal(config_);
      spec_.dex.has_branch() && !refusal.empty())
    throw bad_spec("method", refusal);
  if (const auto problem = model::first_layer_problem(spec_.dex, config_); !problem.empty())
    throw bad_spec("hyperparameters.first_layer", problem);
  base_parameters_ = config_.parameter_count();
  if (spec_.dex.has_second_map()) add_second_map();
  llama_ = std::make_unique<model::Llama>(config_, base_);
  // A checkpoint holds all that was taken from the adapter.
  if (spec_.goes_on() && spec_.checkpoint_dir.empty())
    start_ = load_start(spec_, config_, identity_.base_weights_sha256);
  // Lists given by hand can be judged before the data is read.
  if (spec_.heads.criterion == evaluate::Criterion::kExplicit && spec_.dex.has_branch()) {
    kernels::LinearCrossEntropy unused(1);
    (void)select(spec_, *llama_, {}, {}, nullptr, unused, {});
  }
}

void Job::add_second_map() {
  const model::SecondMapOptions& options = spec_.dex.second_map;
  if (const auto problem = model::second_map_problem(options, config_); !problem.empty())
    throw bad_spec("diff", problem);
  base_ = model::add_second_map(base_, config_, options, spec_.seed);
  config_ = model::with_second_map(config_, options.version);
}

int64_t Job::added_parameters() const {
  return parameters_->added() + config_.parameter_count() - base_parameters_;
}

void Job::load_data() {
  data_ = load_dataset(spec_, config_, session_, [this](Phase phase) { enter(phase); });
  identity_.spec_sha256 = spec_.spec_sha256;
  identity_.start_adapter_sha256 = spec_.start_adapter_sha256;
  identity_.tokenizer_sha256 = data_.tokenizer_sha256;
  identity_.chat_template_sha256 = data_.chat_template_sha256;
  identity_.training_sha256 = data_.training_sha256;
  identity_.validation_sha256 = data_.validation_sha256;
}

void Job::plan() {
  std::vector<int32_t> lengths;
  int64_t trained = 0;
  for (const Example& example : data_.train) {
    lengths.push_back(static_cast<int32_t>(example.ids.size()));
    trained += trainable_tokens(example);
  }
  std::optional<GroupSampling> groups = group_sampling(spec_, data_);
  for (const std::string& warning : group_warnings(spec_, data_, groups)) warn(warning);
  resolved_ = resolve_batches(spec_, lengths, data_.max_seq_length, trained, groups);
  DataPlan::Options options = plan_options(spec_, resolved_);
  options.groups = std::move(groups);
  plan_ = std::make_unique<DataPlan>(lengths, options);
  resolve_schedules(spec_, plan_->updates(), resolved_);
  spec_.dex.lambda.anneal_steps = resolved_.anneal_steps;
  spec_.dex.second_map.mix_updates = spec_.mix_in_ratio * static_cast<double>(resolved_.updates);
  for (const std::string& warning : resolved_.warnings) warn(warning);
  make_prefix();
  held_out_ = in_batches(first_documents(data_.validation, spec_.evaluation.max_tokens));
  if (!held_out_.empty()) return;
  if (spec_.early_stopping.enabled) throw bad_spec("early_stopping.enabled", kNeedsHeldOut);
  if (spec_.base_guard.on()) throw bad_spec("watchdog.base_guard.kl_max", kNeedsHeldOut);
  for (const Gate& gate : spec_.gates) {
    if (gate.figure == Gate::Figure::kHeldOutLoss)
      throw bad_spec("gates", "gate " + gate.name + " " + kNeedsHeldOut);
  }
}

void Job::select_heads() {
  if (!spec_.dex.has_branch()) {
    selection_.heads.resize(static_cast<size_t>(config_.layers));
    return;
  }
  if (spec_.checkpoint_dir.empty()) {
    enter(Phase::kSelectingHeads);
    JobSpec spec = spec_;
    if (start_) spec.heads = heads_of(*start_);
    kernels::LinearCrossEntropy cross_entropy;
    selection_ = select(spec, *llama_, {}, data_.measured(), nullptr, cross_entropy,
                        [this] { controls_.stop_here(); });
    selection_log_ = json::array({json::parse(selection_report(spec, selection_, 0))}).dump();
    const std::string by = start_ ? spec_.start_adapter + " has"
                                  : std::string(name(spec_.heads.criterion)) + " selected";
    session_.event(
        {Event::Level::kInfo, "head_selection_complete",
         by + " " + std::to_string(std::lround(100 * selection_.ratio)) + " % of the heads",
         selection_event(spec, selection_, 0)});
    for (const Advice& advice : calibration_advice(spec.calibration, selection_.scores))
      warn(advice.topic + ": " + advice.sentence());
  } else {
    selection_.heads.resize(static_cast<size_t>(config_.layers));  // the checkpoint has them
  }
}

void Job::refuse_empty_selection() const {
  if (spec_.dex.train != model::Train::kDexOnly || spec_.dex.soft_floor > 0) return;
  if (selection_.ratio > 0) return;
  const auto share = selection_share(spec_.heads, selection_.scores, selection_.ratio);
  if (!share) return;  // lists given by hand: model::problems names them
  throw bad_spec(
      "dex.head_selection",
      "no head is selected, so train DEX_ONLY would train nothing: " + share->sentence());
}

void Job::prepare_weights() {
  std::vector<std::vector<int64_t>> selected;
  for (const auto& set : selection_.heads) selected.emplace_back(set.begin(), set.end());
  if (spec_.checkpoint_dir.empty() && !start_ &&
      !spec_.ranks.follows()) {  // what an adapter started from was judged then
    refuse_empty_selection();
    const auto problems = model::problems(spec_.dex, config_, selected, resolved_.updates);
    if (!problems.empty())
      throw bad_spec(std::string(model::method_name(spec_.dex.train)), problems.front());
  }
  adaptation_ = model::initial_adaptation(spec_.dex, config_, base_, selected, spec_.seed);
  if (start_) take_values(*start_, adaptation_);
  start_.reset();
  parameters_ = std::make_unique<FlatParameters>(model::trainables(adaptation_));
  const Hyperparameters& h = spec_.hyperparameters;
  optimizer_ = std::make_unique<AdamW>(
      *parameters_, AdamW::Options{h.adam_beta1, h.adam_beta2, h.adam_epsilon, h.weight_decay});
}

void Job::prepare_training() {
  const bool fresh = spec_.checkpoint_dir.empty();
  prepare_weights();
  if (group_) {
    leader_ =
        std::make_unique<RankLeader>(*group_, adaptation_, *parameters_, *optimizer_, rank_plan());
  }
  CheckpointStore::Options store;
  store.directory = spec_.attempt_dir;
  store.attempt = spec_.attempt;
  store.keep_last = spec_.checkpoints.keep_last;
  store.keep_best = spec_.checkpoints.keep_best;
  store.identity = identity_;
  store.geometry = {resolved_.micro_batch_size, at::get_num_threads(),
                    kernels::name(kernels::gemm_in_use()), spec_.ranks.ranks};
  const auto free = base::free_bytes(spec_.attempt_dir);
  const EarlyStopping early(spec_.early_stopping);
  const int64_t needed = 2 * checkpoint_bytes(*parameters_, early.keeps_best());
  if (free.ok() && free.value() < needed) {
    throw Failure(Exit::kDiskFull, "disk_full",
                  spec_.attempt_dir.string() + " has " + std::to_string(free.value()) +
                      " bytes free, a job needs " + std::to_string(needed) + " (two checkpoints)");
  }
  checkpoints_ = std::make_unique<CheckpointStore>(store, clock_, files_);
  training_ = std::make_unique<Training>(Training::Parts{
      spec_,         resolved_,    *llama_,       adaptation_,      *parameters_,
      *optimizer_,   *plan_,       data_.train,   data_.measured(), held_out_,
      *checkpoints_, identity_,    session_,      controls_,        metrics_,
      clock_,        probe_.get(), prefix_.get(), leader_.get(),    data_.validation_rows});
  if (fresh) {
    training_->begin(selection_.heads, selection_log_);
  } else {
    resume();
  }
  json data = {{"totalSteps", resolved_.updates},
               {"trainedParameters", std::to_string(parameters_->trained())},
               {"addedParameters", std::to_string(added_parameters())},
               {"annealSteps", resolved_.anneal_steps},
               {"resumedFromStep", training_->state().step}};
  if (plan_->groups()) data["groups"] = json::parse(groups_json(*plan_->groups()));
  const std::string annealing =
      anneals(spec_)
          ? "annealing over " + annealing_text(resolved_.anneal_steps, resolved_.updates) + ", "
          : "";
  const Event begins{
      Event::Level::kInfo, "training_start",
      std::to_string(resolved_.updates) + " updates of " + std::to_string(resolved_.batch_size) +
          " sequences, " +
          (group_ ? "shared by " + std::to_string(group_->ranks()) + " ranks, " : "") + annealing +
          std::to_string(parameters_->trained()) + " trained parameters" +
          (plan_->groups() ? ", " + groups_text(spec_.hyperparameters.group_by, *plan_->groups())
                           : "") +
          (spec_.goes_on() ? ", going on from " + spec_.start_adapter : "") +
          (fresh ? "" : ", resumed at step " + std::to_string(training_->state().step)),
      data.dump()};
  if (!spec_.hold) session_.event(begins);  // advice is worth more before than after the start
  if (fresh && !spec_.goes_on()) {
    training_->advise(
        branch_out_of_reach(spec_, resolved_, model::projected_width(spec_.dex, config_)));
    if (spec_.dex.has_branch() && spec_.dex.start == model::Start::kLiteral) advise_of_start();
    if (spec_.dex.has_branch())
      training_->advise(selection_share(spec_.heads, selection_.scores, selection_.ratio));
  }
}

void Job::advise_of_start() {
  kernels::LinearCrossEntropy cross_entropy;
  const auto effect = evaluate::measure_branch_effect(*llama_, adaptation_, effect_batches(),
                                                      cross_entropy, [this] { controls_.poll(); });
  training_->advise(start_not_identity(-effect.ce_delta));
}

void Job::resume() {
  LoadedCheckpoint loaded = load_checkpoint(spec_.checkpoint_dir, spec_.checkpoint_manifest_sha256,
                                            identity_, *parameters_);
  parameters_->copy_values_from(loaded.values);
  optimizer_->restore(loaded.first_moment, loaded.second_moment, loaded.optimizer_updates);
  if (loaded.geometry.micro_batch_size != resolved_.micro_batch_size ||
      loaded.geometry.threads != at::get_num_threads() ||
      loaded.geometry.ranks != spec_.ranks.ranks ||
      loaded.geometry.gemm != kernels::name(kernels::gemm_in_use())) {
    warn("resume_not_exact: the checkpoint was made with micro_batch_size " +
         std::to_string(loaded.geometry.micro_batch_size) + " and " +
         std::to_string(loaded.geometry.threads) + " threads, products by " + loaded.geometry.gemm +
         ", by " + std::to_string(loaded.geometry.ranks) +
         (loaded.geometry.ranks == 1 ? " rank" : " ranks") + "; results may differ by rounding");
  }
  training_->resume(std::move(loaded.state), loaded.best_values, spec_.checkpoint_dir);
}

std::vector<evaluate::Document> first_documents(const std::vector<Example>& examples,
                                                int64_t max_tokens) {
  std::vector<evaluate::Document> documents;
  int64_t tokens = 0;
  for (const Example& example : examples) {
    tokens += static_cast<int64_t>(example.ids.size());
    if (tokens > max_tokens && !documents.empty()) break;
    documents.push_back({example.ids, example.weights});
  }
  return documents;
}

std::vector<evaluate::Document> enough_documents(const std::vector<Example>& examples,
                                                 int64_t least) {
  std::vector<evaluate::Document> documents;
  int64_t tokens = 0;
  for (const Example& example : examples) {
    if (tokens >= least) break;
    tokens += static_cast<int64_t>(example.ids.size());
    documents.push_back({example.ids, example.weights});
  }
  return documents;
}

}  // namespace detail

Published run_job(const JobSpec& spec, Session& session, const base::Clock& clock,
                  base::FileLayer& files) {
  return detail::Job(spec, session, clock, files).run();
}

}  // namespace dex::train
