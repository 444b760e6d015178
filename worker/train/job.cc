#include "worker/train/job.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <memory>
#include <new>
#include <nlohmann/json.hpp>

#include "services/base/files.h"
#include "worker/evaluate/branch_effect.h"
#include "worker/model/weights.h"
#include "worker/train/advice.h"
#include "worker/train/dataset.h"
#include "worker/train/disk_failure.h"
#include "worker/train/host_memory.h"
#include "worker/train/publish.h"
#include "worker/train/selection.h"
#include "worker/train/training.h"

namespace dex::train {
namespace {

using nlohmann::json;

constexpr int64_t kEvaluationBatchTokens = 512;  // as a micro-batch: memory, performance.md §3
constexpr int64_t kEffectTokens = 4096;          // method.md §2.6

// A job's parts in the order in which they come to be. One attempt, one thread.
class Job {
 public:
  Job(const JobSpec& spec, Session& session, const base::Clock& clock, base::FileLayer& files)
      : spec_(spec),
        session_(session),
        clock_(clock),
        files_(files),
        controls_(session),
        metrics_(spec.attempt_dir / "metrics.jsonl") {}

  Published run() {
    begin_ms_ = clock_.steady_ms();
    load_model();
    load_data();
    plan();
    select_heads();
    prepare_training();
    training_->run();
    return publish();
  }

 private:
  void enter(Phase phase) {
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
  void warn(const std::string& text);

  void load_model();
  void load_data();
  void plan();
  void select_heads();
  void prepare_training();
  void resume();
  Published publish();
  std::string metrics_json() const;
  void report_effect(const evaluate::BranchEffect& effect);
  std::vector<evaluate::SupervisedBatch> effect_batches() const;

  JobSpec spec_;
  Session& session_;
  const base::Clock& clock_;
  base::FileLayer& files_;
  Controls controls_;
  MetricsFile metrics_;
  int64_t begin_ms_ = 0;

  model::Config config_;
  model::Weights base_;
  std::unique_ptr<model::Llama> llama_;
  Identity identity_;
  Dataset data_;
  std::vector<evaluate::SupervisedBatch> held_out_;
  Resolved resolved_;
  std::unique_ptr<DataPlan> plan_;
  Selection selection_;
  std::string selection_log_ = "[]";
  model::Adaptation adaptation_;
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<CheckpointStore> checkpoints_;
  std::unique_ptr<Training> training_;
};

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
  llama_ = std::make_unique<model::Llama>(config_, base_);
  // Lists given by hand can be judged before the data is read.
  if (spec_.heads.criterion == evaluate::Criterion::kExplicit && spec_.dex.has_branch()) {
    kernels::LinearCrossEntropy unused(1);
    (void)select(spec_, *llama_, {}, {}, nullptr, unused, {});
  }
}

void Job::load_data() {
  data_ = load_dataset(spec_, config_, session_, [this](Phase phase) { enter(phase); });
  identity_.spec_sha256 = spec_.spec_sha256;
  identity_.tokenizer_sha256 = data_.tokenizer_sha256;
  identity_.chat_template_sha256 = data_.chat_template_sha256;
  identity_.training_sha256 = data_.training_sha256;
  identity_.validation_sha256 = data_.validation_sha256;
}

// Documents up to `max_tokens` tokens, at least one.
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

void Job::plan() {
  std::vector<int32_t> lengths;
  int64_t trained = 0;
  for (const Example& example : data_.train) {
    lengths.push_back(static_cast<int32_t>(example.ids.size()));
    trained += trainable_tokens(example);
  }
  resolved_ = resolve_batches(spec_, lengths, data_.max_seq_length, trained);
  plan_ = std::make_unique<DataPlan>(lengths, plan_options(spec_, resolved_));
  resolve_schedules(spec_, plan_->updates(), resolved_);
  spec_.dex.lambda.anneal_steps = resolved_.anneal_steps;
  for (const std::string& warning : resolved_.warnings) warn(warning);
  held_out_ = evaluate::supervise_in_batches(
      first_documents(data_.validation, spec_.evaluation.max_tokens), kEvaluationBatchTokens);
}

void Job::select_heads() {
  if (!spec_.dex.has_branch()) {
    selection_.heads.resize(static_cast<size_t>(config_.layers));
    return;
  }
  if (spec_.checkpoint_dir.empty()) {
    enter(Phase::kSelectingHeads);
    kernels::LinearCrossEntropy cross_entropy;
    selection_ = select(spec_, *llama_, {}, data_.train, nullptr, cross_entropy,
                        [this] { controls_.stop_here(); });
    selection_log_ = json::array({json::parse(selection_report(spec_, selection_, 0))}).dump();
    session_.event({Event::Level::kInfo, "head_selection_complete",
                    std::string(name(spec_.heads.criterion)) + " selected " +
                        std::to_string(std::lround(100 * selection_.ratio)) + " % of the heads",
                    selection_event(spec_, selection_, 0)});
  } else {
    selection_.heads.resize(static_cast<size_t>(config_.layers));  // the checkpoint has them
  }
}

void Job::prepare_training() {
  std::vector<std::vector<int64_t>> selected;
  for (const auto& set : selection_.heads) selected.emplace_back(set.begin(), set.end());
  const bool fresh = spec_.checkpoint_dir.empty();
  if (fresh) {
    const auto problems = model::problems(spec_.dex, config_, selected, resolved_.updates);
    if (!problems.empty()) throw bad_spec("dex", problems.front());
  }
  adaptation_ = model::initial_adaptation(spec_.dex, config_, base_, selected, spec_.seed);
  parameters_ = std::make_unique<FlatParameters>(model::trainables(adaptation_));
  const Hyperparameters& h = spec_.hyperparameters;
  optimizer_ = std::make_unique<AdamW>(
      *parameters_, AdamW::Options{h.adam_beta1, h.adam_beta2, h.adam_epsilon, h.weight_decay});

  CheckpointStore::Options store;
  store.directory = spec_.attempt_dir;
  store.attempt = spec_.attempt;
  store.keep_last = spec_.checkpoints.keep_last;
  store.keep_best = spec_.checkpoints.keep_best;
  store.identity = identity_;
  store.geometry = {resolved_.micro_batch_size, at::get_num_threads()};
  const auto free = base::free_bytes(spec_.attempt_dir);
  if (free.ok() && free.value() < 2 * checkpoint_bytes(*parameters_)) {
    throw Failure(Exit::kDiskFull, "disk_full",
                  spec_.attempt_dir.string() + " has " + std::to_string(free.value()) +
                      " bytes free, a job needs " +
                      std::to_string(2 * checkpoint_bytes(*parameters_)) + " (two checkpoints)");
  }
  checkpoints_ = std::make_unique<CheckpointStore>(store, clock_, files_);
  training_ = std::make_unique<Training>(Training::Parts{
      spec_, resolved_, *llama_, adaptation_, *parameters_, *optimizer_, *plan_, data_.train,
      held_out_, *checkpoints_, identity_, session_, controls_, metrics_, clock_});
  if (fresh) {
    training_->begin(selection_.heads, selection_log_);
  } else {
    resume();
  }
  const json data = {
      {"totalSteps", resolved_.updates},
      {"trainedParameters", std::to_string(parameters_->trained())},
      {"addedParameters", std::to_string(parameters_->trained(model::Group::kBranch) +
                                         parameters_->trained(model::Group::kLambda))},
      {"annealSteps", resolved_.anneal_steps},
      {"resumedFromStep", training_->state().step}};
  session_.event({Event::Level::kInfo, "training_start",
                  std::to_string(resolved_.updates) + " updates of " +
                      std::to_string(resolved_.batch_size) + " sequences, " +
                      std::to_string(parameters_->trained()) + " trained parameters" +
                      (fresh ? "" : ", resumed at step " + std::to_string(training_->state().step)),
                  data.dump()});
  if (fresh) {
    training_->advise(branch_out_of_reach(spec_, resolved_, config_.head_dim));
    if (spec_.dex.has_branch())
      training_->advise(selection_share(spec_.heads, selection_.scores, selection_.ratio));
  }
}

void Job::resume() {
  LoadedCheckpoint loaded = load_checkpoint(spec_.checkpoint_dir, spec_.checkpoint_manifest_sha256,
                                            identity_, *parameters_);
  parameters_->copy_values_from(loaded.values);
  optimizer_->restore(loaded.first_moment, loaded.second_moment, loaded.optimizer_updates);
  if (loaded.geometry.micro_batch_size != resolved_.micro_batch_size ||
      loaded.geometry.threads != at::get_num_threads()) {
    warn("resume_not_exact: the checkpoint was made with micro_batch_size " +
         std::to_string(loaded.geometry.micro_batch_size) + " and " +
         std::to_string(loaded.geometry.threads) + " threads; results may differ by rounding");
  }
  training_->resume(std::move(loaded.state), spec_.checkpoint_dir);
}

std::vector<evaluate::SupervisedBatch> Job::effect_batches() const {
  const auto& source = data_.validation.empty() ? data_.train : data_.validation;
  return evaluate::supervise_in_batches(first_documents(source, kEffectTokens),
                                        kEvaluationBatchTokens);
}

std::string Job::metrics_json() const {
  const TrainState& state = training_->state();
  json out = {{"steps", state.step},
              {"trained_tokens", state.trained_tokens},
              {"trained_parameters", parameters_->trained()},
              {"anneal_steps", resolved_.anneal_steps},
              {"seed", spec_.seed}};
  if (state.base_loss) out["base_valid_loss"] = *state.base_loss;
  if (state.valid_loss) out["valid_loss"] = *state.valid_loss;
  if (state.best_loss) out["best_valid_loss"] = *state.best_loss;
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
  const std::string value = json(effect.value).dump();
  session_.event({Event::Level::kInfo, "branch_verdict", "branch_effect " + value + ": " + verdict,
                  data.dump()});
  if (effect.verdict == evaluate::BranchEffect::Verdict::kActive) return;
  const bool inert = effect.verdict == evaluate::BranchEffect::Verdict::kInert;
  training_->advise(Advice{
      inert ? "inert" : "weak",
      "the branch's share of O is " + value +
          " at the end; without it the held-out loss would be " + json(effect.ce_delta).dump() +
          " higher",
      "compare with kvo_only; raise lambda_learning_rate and branch_learning_rate, or use a COSINE "
      "schedule of λ"});
}

Published Job::publish() {
  const TrainState& state = training_->state();
  const json complete = {
      {"steps", state.step},
      {"trainedTokens", std::to_string(state.trained_tokens)},
      {"durationSeconds", static_cast<double>(clock_.steady_ms() - begin_ms_) / 1000.0}};
  session_.event(
      {Event::Level::kInfo, "training_complete",
       std::to_string(state.step) + " updates, " + std::to_string(state.trained_tokens) + " tokens",
       complete.dump()});

  enter(Phase::kExporting);
  training_->set_branch(state.step);  // what is published after n updates uses t = n (method.md §1)
  kernels::LinearCrossEntropy cross_entropy;
  Published out;
  out.branch_effect = evaluate::measure_branch_effect(*llama_, adaptation_, effect_batches(),
                                                      cross_entropy, [this] { controls_.poll(); });
  const std::filesystem::path directory = spec_.attempt_dir / "final";
  export_adapter(directory, spec_, identity_, adaptation_, metrics_json(), out.branch_effect);

  enter(Phase::kVerifying);
  const auto verified = verify_adapter(directory, *llama_, base_, adaptation_, identity_,
                                       first_documents(data_.train, kEffectTokens));
  const ArtefactSize size = artefact_size(directory);
  const json exported = {{"bytes", std::to_string(size.bytes)},
                         {"contentSha256", size.content_sha256},
                         {"maxAbsLogitDiff", verified.folded.largest}};
  session_.event({Event::Level::kInfo, "export_complete",
                  "final/ reads back as trained; folded it differs by at most " +
                      json(verified.folded.largest).dump() + " in a logit",
                  exported.dump()});

  enter(Phase::kFinalizing);
  with_disk_failures([&] {
    throw_if_bad(base::write_file_atomically(spec_.attempt_dir / "head_selection.json",
                                             state.selection, 0644, files_));
  });
  out.path = directory.string();
  out.manifest_sha256 = size.content_sha256;
  out.bytes = size.bytes;
  out.trained_tokens = state.trained_tokens;
  out.trained_parameters = parameters_->trained();
  out.added_parameters =
      parameters_->trained(model::Group::kBranch) + parameters_->trained(model::Group::kLambda);
  out.base_valid_loss = state.base_loss;
  out.valid_loss = state.valid_loss;
  out.best_valid_loss = state.best_loss;
  out.tokens_per_second = training_->speed().overall_tokens_per_second();
  out.base_model = spec_.model_name;
  out.base_weights_sha256 = identity_.base_weights_sha256;
  out.tokenizer_sha256 = identity_.tokenizer_sha256;
  out.chat_template_sha256 = identity_.chat_template_sha256;
  out.method = spec_.dex.has_branch() ? "dex" : "kvo_only";
  out.form = model::name(spec_.dex.form);
  out.projection = model::name(spec_.dex.projection);
  out.train = model::name(spec_.dex.train);
  out.artifact_class = spec_.dex.trains_kvo() ? "KVO" : "LIGHT";
  report_effect(out.branch_effect);
  out.peak_host_memory_bytes = peak_host_memory();
  return out;
}

}  // namespace

Published run_job(const JobSpec& spec, Session& session, const base::Clock& clock,
                  base::FileLayer& files) {
  return Job(spec, session, clock, files).run();
}

Ending ending_of(const std::exception& error) {
  Ending ending;
  ending.message = error.what();
  if (const auto* stopped = dynamic_cast<const Stopped*>(&error)) {
    ending.exit = Exit::kStopped;
    ending.stopped = stopped->reason();
  } else if (const auto* failure = dynamic_cast<const Failure*>(&error)) {
    ending.exit = failure->exit();
    ending.code = failure->code();
    ending.param = failure->param();
  } else if (dynamic_cast<const std::bad_alloc*>(&error) ||
             ending.message.find("DefaultCPUAllocator") != std::string::npos) {
    ending.exit = Exit::kOutOfMemory;
    ending.code = "out_of_memory";
  } else {
    ending.exit = Exit::kInternal;
    ending.code = "internal";
  }
  return ending;
}

}  // namespace dex::train
