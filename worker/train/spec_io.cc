// protobuf ⇄ plain. This file includes no LibTorch header (performance.md §7).
#include "worker/train/spec_io.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/sha256.h"
#include "worker/train/failure.h"

namespace dex::train {
namespace {

namespace pb = dex::v1;
using pb::DexMethod;
using pb::HeadSelection;
using Start = dex::internal::v1::TrainerStart;

std::string shown(double value) {
  return std::isnan(value) ? "NaN" : std::to_string(value);
}

double in_range(double value, double low, double high, const char* field) {
  if (!(value >= low && value <= high)) {
    throw bad_spec(
        field, "must be between " + shown(low) + " and " + shown(high) + ", got " + shown(value));
  }
  return value;
}

double positive(double value, const char* field) {
  if (!(value > 0) || !std::isfinite(value))
    throw bad_spec(field, "must be a number > 0, got " + shown(value));
  return value;
}

double finite(double value, const char* field) {
  if (!std::isfinite(value)) throw bad_spec(field, "must be a finite number, got " + shown(value));
  return value;
}

[[noreturn]] void unknown_enum(const char* field, int value) {
  throw bad_spec(field, "unknown value " + std::to_string(value));
}

model::Form form(DexMethod::Form value) {
  switch (value) {
    case DexMethod::FORM_PAPER:
      return model::Form::kPaper;
    case DexMethod::FORM_HEAD_MEAN:
      return model::Form::kHeadMean;
    default:
      unknown_enum("dex.form", value);
  }
}

model::Projection projection(DexMethod::Projection value) {
  switch (value) {
    case DexMethod::PROJECTION_SHARED:
      return model::Projection::kShared;
    case DexMethod::PROJECTION_PER_HEAD:
      return model::Projection::kPerHead;
    case DexMethod::PROJECTION_BOTTLENECK:
      return model::Projection::kBottleneck;
    default:
      unknown_enum("dex.projection", value);
  }
}

void read_bottleneck(const DexMethod& method, model::DexOptions& out) {
  if (!method.has_bottleneck()) return;
  if (out.projection != model::Projection::kBottleneck) {
    throw bad_spec("dex.bottleneck", "has an effect only with PROJECTION_BOTTLENECK");
  }
  const auto& bottleneck = method.bottleneck();
  if (bottleneck.has_width_ratio()) {
    out.width_ratio =
        positive(in_range(bottleneck.width_ratio(), 0, 16, "dex.bottleneck.width_ratio"),
                 "dex.bottleneck.width_ratio");
  }
  if (bottleneck.scope() == DexMethod::Bottleneck::SCOPE_SHARED) {
    out.bottleneck_scope = model::BottleneckScope::kShared;
  }
  if (bottleneck.scope() == DexMethod::Bottleneck::SCOPE_PER_HEAD) {
    out.bottleneck_scope = model::BottleneckScope::kPerHead;
  }
}

void read_lambda(const pb::Lambda& lambda, JobSpec& out) {
  auto& options = out.dex.lambda;
  if (lambda.has_schedule()) {
    switch (lambda.schedule()) {
      case pb::Lambda::SCHEDULE_PAPER_EQ4:
        options.schedule = model::Schedule::kPaperEq4;
        break;
      case pb::Lambda::SCHEDULE_COSINE:
        options.schedule = model::Schedule::kSeedCosine;
        break;
      default:
        unknown_enum("dex.lambda.schedule", lambda.schedule());
    }
  }
  const bool cosine = options.schedule == model::Schedule::kSeedCosine;
  if (cosine && (!lambda.has_start() || !lambda.has_end())) {
    throw bad_spec("dex.lambda.start", "start and end are needed with SCHEDULE_COSINE");
  }
  if (lambda.has_init()) options.init = finite(lambda.init(), "dex.lambda.init");
  if (lambda.has_learn_init())
    options.learn_init = finite(lambda.learn_init(), "dex.lambda.learn_init");
  if (cosine) {
    options.start = finite(lambda.start(), "dex.lambda.start");
    options.end = finite(lambda.end(), "dex.lambda.end");
  }
  if (lambda.anneal_case() == pb::Lambda::kAnnealFraction) {
    out.anneal.fraction = in_range(lambda.anneal_fraction(), 0, 1, "dex.lambda.anneal_fraction");
  }
  if (lambda.anneal_case() == pb::Lambda::kAnnealSteps) {
    if (lambda.anneal_steps() < 0) {
      throw bad_spec("dex.lambda.anneal_steps",
                     "must be ≥ 0, got " + std::to_string(lambda.anneal_steps()));
    }
    out.anneal.steps = lambda.anneal_steps();
  }
}

evaluate::Criterion criterion(HeadSelection::Criterion value) {
  switch (value) {
    case HeadSelection::CRITERION_ENTROPY:
      return evaluate::Criterion::kEntropy;
    case HeadSelection::CRITERION_IMPORTANCE:
      return evaluate::Criterion::kImportance;
    case HeadSelection::CRITERION_THRESHOLD:
      return evaluate::Criterion::kThreshold;
    case HeadSelection::CRITERION_ALL:
      return evaluate::Criterion::kAll;
    case HeadSelection::CRITERION_EXPLICIT:
      return evaluate::Criterion::kExplicit;
    default:
      unknown_enum("dex.head_selection.criterion", value);
  }
}

void read_units(const HeadSelection& heads, evaluate::SelectionRule& out) {
  switch (heads.entropy_unit()) {
    case HeadSelection::ENTROPY_UNIT_NATS:
      out.entropy_unit = evaluate::EntropyUnit::kNats;
      break;
    case HeadSelection::ENTROPY_UNIT_NORMALIZED:
      out.entropy_unit = evaluate::EntropyUnit::kNormalized;
      break;
    case HeadSelection::ENTROPY_UNIT_QUANTILE:
      out.entropy_unit = evaluate::EntropyUnit::kQuantile;
      break;
    default:
      out.entropy_unit = evaluate::EntropyUnit::kZscore;
  }
  switch (heads.contribution_unit()) {
    case HeadSelection::CONTRIBUTION_UNIT_SHARE:
      out.contribution_unit = evaluate::ContributionUnit::kShare;
      break;
    case HeadSelection::CONTRIBUTION_UNIT_RELMAX:
      out.contribution_unit = evaluate::ContributionUnit::kRelmax;
      break;
    default:
      out.contribution_unit = evaluate::ContributionUnit::kL2norm;
  }
}

void read_calibration(const HeadSelection::Calibration& calibration, Calibration& out) {
  if (calibration.has_n_sequences()) {
    out.n_sequences = static_cast<int32_t>(
        in_range(calibration.n_sequences(), 1, 1024, "dex.head_selection.calibration.n_sequences"));
  }
  if (calibration.has_seq_length()) {
    out.seq_length = static_cast<int32_t>(in_range(calibration.seq_length(), 2, 1 << 20,
                                                   "dex.head_selection.calibration.seq_length"));
  }
  if (calibration.has_skip_rows()) {
    out.skip_rows = static_cast<int32_t>(
        in_range(calibration.skip_rows(), 0, 1 << 20, "dex.head_selection.calibration.skip_rows"));
  }
}

void read_heads(const HeadSelection& heads, JobSpec& out) {
  if (heads.has_criterion()) out.heads.criterion = criterion(heads.criterion());
  if (heads.has_fraction())
    out.heads.fraction = in_range(heads.fraction(), 0, 1, "dex.head_selection.fraction");
  const bool threshold = out.heads.criterion == evaluate::Criterion::kThreshold;
  if (threshold && (!heads.has_tau() || !heads.has_eta())) {
    throw bad_spec(heads.has_tau() ? "dex.head_selection.eta" : "dex.head_selection.tau",
                   "tau and eta are needed with CRITERION_THRESHOLD");
  }
  if (threshold) {
    out.heads.tau = finite(heads.tau(), "dex.head_selection.tau");
    out.heads.eta = finite(heads.eta(), "dex.head_selection.eta");
  }
  read_units(heads, out.heads);
  for (const auto& entry : heads.heads()) {
    if (entry.layer() > 4096) {
      throw bad_spec("dex.head_selection.heads",
                     "layer " + std::to_string(entry.layer()) + " does not exist");
    }
    // One entry a layer that has any; the number of layers is known with the model.
    if (out.heads.heads.size() <= entry.layer()) out.heads.heads.resize(entry.layer() + 1);
    auto& list = out.heads.heads[entry.layer()];
    list.insert(list.end(), entry.heads().begin(), entry.heads().end());
  }
  if (heads.has_calibration()) read_calibration(heads.calibration(), out.calibration);
  out.reselect_every = heads.reselect_every_steps();
}

void read_dex(const DexMethod& method, JobSpec& out) {
  out.preset = method.preset();
  const std::string family = out.preset.substr(0, out.preset.find('@'));
  if (!family.empty() && family != "paper" && !method.has_form()) {
    throw bad_spec("dex.preset",
                   "\"" + out.preset +
                       "\" has no values here; dex-trainer takes effective specs, presets are "
                       "resolved by the scheduler");
  }
  if (method.has_form()) out.dex.form = form(method.form());
  if (method.has_projection()) out.dex.projection = projection(method.projection());
  read_bottleneck(method, out.dex);
  // The form's own default sign (method.md §3.1) stands when none is given.
  out.dex.sign = out.dex.form == model::Form::kPaper ? model::Sign::kMinus : model::Sign::kPlus;
  if (method.sign() == DexMethod::SIGN_MINUS) out.dex.sign = model::Sign::kMinus;
  if (method.sign() == DexMethod::SIGN_PLUS) out.dex.sign = model::Sign::kPlus;
  if (method.train() == DexMethod::TRAIN_DEX_ONLY) out.dex.train = model::Train::kDexOnly;
  if (method.w_d_init() == DexMethod::BRANCH_INIT_LINEAR)
    out.dex.w_d_init = model::BranchInit::kLinear;
  if (method.has_lambda()) read_lambda(method.lambda(), out);
  if (method.has_head_selection()) read_heads(method.head_selection(), out);
}

void read_rates(const pb::Hyperparameters& in, Hyperparameters& out) {
  if (in.has_learning_rate() && in.has_learning_rate_multiplier()) {
    throw bad_spec("hyperparameters.learning_rate_multiplier", "not together with learning_rate");
  }
  if (in.has_learning_rate())
    out.learning_rate = positive(in.learning_rate(), "hyperparameters.learning_rate");
  if (in.has_branch_learning_rate()) {
    out.branch_learning_rate =
        positive(in.branch_learning_rate(), "hyperparameters.branch_learning_rate");
  }
  if (in.has_lambda_learning_rate()) {
    out.lambda_learning_rate =
        positive(in.lambda_learning_rate(), "hyperparameters.lambda_learning_rate");
  }
  if (in.has_learning_rate_multiplier()) {
    const double factor = in_range(in.learning_rate_multiplier(), 0.01, 100,
                                   "hyperparameters.learning_rate_multiplier");
    out.learning_rate *= factor;
    out.branch_learning_rate *= factor;
    out.lambda_learning_rate *= factor;
  }
  if (in.lr_scheduler_type() == pb::Hyperparameters::LR_SCHEDULER_LINEAR)
    out.schedule = LrSchedule::kLinear;
  if (in.lr_scheduler_type() == pb::Hyperparameters::LR_SCHEDULER_CONSTANT)
    out.schedule = LrSchedule::kConstant;
  if (in.has_warmup_ratio()) {
    out.warmup_ratio = in_range(in.warmup_ratio(), 0, 0.5, "hyperparameters.warmup_ratio");
  }
  if (in.has_max_grad_norm())
    out.max_grad_norm = positive(in.max_grad_norm(), "hyperparameters.max_grad_norm");
  if (in.has_weight_decay()) {
    out.weight_decay = in_range(in.weight_decay(), 0, 1, "hyperparameters.weight_decay");
  }
  if (in.has_adam_beta1())
    out.adam_beta1 = in_range(in.adam_beta1(), 0, 0.9999, "hyperparameters.adam_beta1");
  if (in.has_adam_beta2())
    out.adam_beta2 = in_range(in.adam_beta2(), 0, 0.99999, "hyperparameters.adam_beta2");
}

void read_sizes(const pb::Hyperparameters& in, Hyperparameters& out) {
  if (in.has_n_epochs()) {
    out.n_epochs =
        static_cast<int64_t>(in_range(in.n_epochs(), 1, 100, "hyperparameters.n_epochs"));
  }
  out.max_steps = in.max_steps();
  if (in.has_max_seq_length()) {
    out.max_seq_length = static_cast<int32_t>(
        in_range(in.max_seq_length(), 16, 1 << 20, "hyperparameters.max_seq_length"));
  }
  if (in.has_batch_size()) {
    out.batch_size =
        static_cast<int32_t>(in_range(in.batch_size(), 1, 4096, "hyperparameters.batch_size"));
  }
  if (in.has_micro_batch_size()) {
    out.micro_batch_size = static_cast<int32_t>(
        in_range(in.micro_batch_size(), 1, 4096, "hyperparameters.micro_batch_size"));
  }
  if (in.has_packing()) out.packing = in.packing();
  if (in.has_train_on_inputs()) out.train_on_inputs = in.train_on_inputs();
  switch (in.truncation()) {
    case pb::Hyperparameters::TRUNCATION_RIGHT:
      out.truncation = text::Truncation::kRight;
      break;
    case pb::Hyperparameters::TRUNCATION_LEFT:
      out.truncation = text::Truncation::kLeft;
      break;
    case pb::Hyperparameters::TRUNCATION_CHUNK:
      out.truncation = text::Truncation::kChunk;
      break;
    case pb::Hyperparameters::TRUNCATION_ERROR:
      out.truncation = text::Truncation::kError;
      break;
    default:
      break;
  }
}

void read_policies(const pb::FineTuningJobSpec& in, JobSpec& out) {
  if (in.evaluation().has_every_steps()) out.evaluation.every_steps = in.evaluation().every_steps();
  if (in.evaluation().has_max_tokens()) out.evaluation.max_tokens = in.evaluation().max_tokens();
  if (in.checkpoints().has_every_steps())
    out.checkpoints.every_steps = in.checkpoints().every_steps();
  if (in.checkpoints().has_every_seconds()) {
    out.checkpoints.every_seconds =
        positive(in.checkpoints().every_seconds(), "checkpoints.every_seconds");
  }
  if (in.checkpoints().has_keep_last()) {
    out.checkpoints.keep_last = static_cast<int32_t>(
        in_range(in.checkpoints().keep_last(), 1, 1000, "checkpoints.keep_last"));
  }
  if (in.checkpoints().has_keep_best()) out.checkpoints.keep_best = in.checkpoints().keep_best();
  if (in.watchdog().has_non_finite_patience()) {
    out.watchdog.non_finite_patience = static_cast<int32_t>(
        in_range(in.watchdog().non_finite_patience(), 1, 1000, "watchdog.non_finite_patience"));
  }
  if (in.watchdog().has_max_rollbacks()) {
    out.watchdog.max_rollbacks = static_cast<int32_t>(
        in_range(in.watchdog().max_rollbacks(), 0, 100, "watchdog.max_rollbacks"));
  }
  if (in.has_validation_split()) {
    out.validation_split = in_range(in.validation_split(), 0, 0.5, "validation_split");
  }
  if (in.has_skip_budget_ratio()) {
    out.skip_budget_ratio = in_range(in.skip_budget_ratio(), 0, 0.1, "skip_budget_ratio");
  }
  out.seed = static_cast<uint64_t>(in.seed());
}

// The hash that ties a checkpoint to its job: of the spec alone, in deterministic wire form. Paths,
// thread count and attempt are the machine's business and may change between attempts.
std::string hash_of(const pb::FineTuningJobSpec& spec) {
  std::string bytes;
  google::protobuf::io::StringOutputStream sink(&bytes);
  {
    google::protobuf::io::CodedOutputStream stream(&sink);
    stream.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&stream);
  }
  return base::sha256_hex(bytes);
}

JobSpec from_message(const Start& start) {
  JobSpec out;
  out.job_id = start.job_id().empty() ? "local" : start.job_id();
  out.model_dir = start.model_dir();
  out.model_name =
      start.base_model_name().empty() ? out.model_dir.filename().string() : start.base_model_name();
  out.training_path = start.training_path();
  out.validation_path = start.validation_path();
  out.attempt_dir = start.attempt_dir();
  out.checkpoint_dir = start.checkpoint_dir();
  out.checkpoint_manifest_sha256 = start.checkpoint_manifest_sha256();
  out.training_sha256 = start.training_sha256();
  out.validation_sha256 = start.validation_sha256();
  out.base_weights_sha256 = start.base_weights_sha256();
  out.attempt = static_cast<int32_t>(std::max(1u, start.attempt()));
  out.oom_retries = static_cast<int32_t>(start.oom_retries());
  out.threads = static_cast<int32_t>(in_range(start.threads(), 0, 4096, "threads"));
  if (out.model_dir.empty())
    throw bad_spec("model_dir", "must be the Hugging Face folder of the base model");
  if (out.training_path.empty()) throw bad_spec("training_path", "must be a data file");

  const auto& spec = start.spec();
  read_rates(spec.hyperparameters(), out.hyperparameters);
  read_sizes(spec.hyperparameters(), out.hyperparameters);
  if (spec.has_kvo_only()) {
    out.dex.form = model::Form::kNone;
    out.dex.train = model::Train::kKvoOnly;
  } else {
    read_dex(spec.dex(), out);
  }
  read_policies(spec, out);
  out.spec_sha256 = hash_of(spec);
  return out;
}

}  // namespace

JobSpec parse_spec_json(const std::string& json, const std::string& source) {
  Start start;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &start);
  if (!status.ok())
    throw bad_spec(source, "not a TrainerStart message in JSON: " + std::string(status.message()));
  return from_message(start);
}

JobSpec parse_spec_bytes(const std::string& bytes) {
  Start start;
  if (!start.ParseFromString(bytes)) throw bad_spec("start", "not a TrainerStart message");
  return from_message(start);
}

}  // namespace dex::train
