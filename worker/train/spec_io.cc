// protobuf ⇄ plain. This file includes no LibTorch header (performance.md §7).
#include "worker/train/spec_io.h"

#include <google/protobuf/util/json_util.h>

#include "dex/internal/v1/frames.pb.h"
#include "proto/deterministic_bytes.h"
#include "proto/gate_tasks.h"
#include "proto/gates.h"
#include "proto/spec_values.h"
#include "services/base/sha256.h"
#include "worker/train/failure.h"
#include "worker/train/spec_method.h"

namespace dex::train {
namespace {

namespace pb = dex::v1;
using Start = dex::internal::v1::TrainerStart;

void read_rates(const pb::Hyperparameters& in, Hyperparameters& out) {
  if (in.has_learning_rate() && in.has_learning_rate_multiplier()) {
    throw bad_spec("hyperparameters.learning_rate_multiplier", "not together with learning_rate");
  }
  // The multiplier is of the rates that nobody gave.
  const double factor = in.has_learning_rate_multiplier() ? in.learning_rate_multiplier() : 1;
  const auto rate = [factor](bool given, double value, double usual) {
    return given ? value : usual * factor;
  };
  out.learning_rate = rate(in.has_learning_rate(), in.learning_rate(), out.learning_rate);
  out.branch_learning_rate =
      rate(in.has_branch_learning_rate(), in.branch_learning_rate(), out.branch_learning_rate);
  out.lambda_learning_rate =
      rate(in.has_lambda_learning_rate(), in.lambda_learning_rate(), out.lambda_learning_rate);
  if (in.lr_scheduler_type() == pb::Hyperparameters::LR_SCHEDULER_LINEAR)
    out.schedule = LrSchedule::kLinear;
  if (in.lr_scheduler_type() == pb::Hyperparameters::LR_SCHEDULER_CONSTANT)
    out.schedule = LrSchedule::kConstant;
  if (in.has_warmup_ratio()) out.warmup_ratio = in.warmup_ratio();
  if (in.has_max_grad_norm()) out.max_grad_norm = in.max_grad_norm();
  if (in.has_weight_decay()) out.weight_decay = in.weight_decay();
  if (in.has_adam_beta1()) out.adam_beta1 = in.adam_beta1();
  if (in.has_adam_beta2()) out.adam_beta2 = in.adam_beta2();
}

void read_sizes(const pb::Hyperparameters& in, Hyperparameters& out) {
  if (in.has_n_epochs()) out.n_epochs = in.n_epochs();
  out.max_steps = in.max_steps();
  if (in.has_max_seq_length()) out.max_seq_length = static_cast<int32_t>(in.max_seq_length());
  if (in.has_batch_size()) out.batch_size = static_cast<int32_t>(in.batch_size());
  if (in.has_micro_batch_size()) out.micro_batch_size = static_cast<int32_t>(in.micro_batch_size());
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
  if (in.group_by() == pb::Hyperparameters::GROUP_BY_TAG) out.group_by = GroupBy::kTag;
  if (in.group_by() == pb::Hyperparameters::GROUP_BY_LANGUAGE) out.group_by = GroupBy::kLanguage;
  for (const auto& [group, weight] : in.group_weights()) out.group_weights[group] = weight;
}

void read_policies(const pb::FineTuningJobSpec& in, JobSpec& out) {
  if (in.evaluation().has_every_steps()) out.evaluation.every_steps = in.evaluation().every_steps();
  if (in.evaluation().has_max_tokens()) out.evaluation.max_tokens = in.evaluation().max_tokens();
  const auto& checkpoints = in.checkpoints();
  if (checkpoints.has_every_steps()) out.checkpoints.every_steps = checkpoints.every_steps();
  if (checkpoints.has_every_seconds()) out.checkpoints.every_seconds = checkpoints.every_seconds();
  if (checkpoints.has_keep_last())
    out.checkpoints.keep_last = static_cast<int32_t>(checkpoints.keep_last());
  if (checkpoints.has_keep_best()) out.checkpoints.keep_best = checkpoints.keep_best();
  const auto& early = in.early_stopping();
  out.early_stopping.enabled = early.enabled();
  if (early.has_patience()) out.early_stopping.patience = static_cast<int32_t>(early.patience());
  if (early.has_min_delta()) out.early_stopping.min_delta = early.min_delta();
  if (early.has_warmup_evals())
    out.early_stopping.warmup_evals = static_cast<int32_t>(early.warmup_evals());
  if (early.has_restore_best()) out.early_stopping.restore_best = early.restore_best();
  const auto& watchdog = in.watchdog();
  if (watchdog.has_non_finite_patience())
    out.watchdog.non_finite_patience = static_cast<int32_t>(watchdog.non_finite_patience());
  if (watchdog.has_max_rollbacks())
    out.watchdog.max_rollbacks = static_cast<int32_t>(watchdog.max_rollbacks());
  if (watchdog.has_loss_factor()) out.watchdog.loss_factor = watchdog.loss_factor();
  if (watchdog.has_loss_patience())
    out.watchdog.loss_patience = static_cast<int32_t>(watchdog.loss_patience());
  if (watchdog.on_trip() == pb::WatchdogOptions::ON_TRIP_FAIL)
    out.watchdog.on_trip = Watchdog::OnTrip::kFail;
  if (watchdog.on_trip() == pb::WatchdogOptions::ON_TRIP_WARN)
    out.watchdog.on_trip = Watchdog::OnTrip::kWarn;
  const auto& guard = watchdog.base_guard();
  out.base_guard.kl_max = guard.kl_max();
  if (guard.has_every_evals()) out.base_guard.every_evals = guard.every_evals();
  out.base_guard.fails = guard.on_trip() != pb::BaseGuardOptions::ON_TRIP_WARN;
  if (in.has_validation_split()) out.validation_split = in.validation_split();
  if (in.has_skip_budget_ratio()) out.skip_budget_ratio = in.skip_budget_ratio();
  out.seed = static_cast<uint64_t>(in.seed());
}

Gate::Figure gate_figure(const pb::Gate& gate) {
  if (gate.task() == "base_guard") return Gate::Figure::kBaseKl;
  if (gate.task() == "held_out") return Gate::Figure::kHeldOutLoss;
  return gate.metric() == "value" ? Gate::Figure::kBranchValue : Gate::Figure::kBranchCeDelta;
}

// Gates that proto::bad_values and proto::conflicts have passed. Those with an evaluation are
// measured once the training is done, by whoever started this process.
void read_gates(pb::FineTuningJobSpec in, JobSpec& out) {
  proto::fill_gates(in);
  for (const pb::Gate& gate : in.gates()) {
    if (gate.has_evaluation()) continue;
    Gate read;
    read.name = gate.name();
    read.figure = gate_figure(gate);
    read.against_base = gate.against() == pb::Gate::AGAINST_BASE;
    read.at_least = gate.op() == pb::Gate::OP_GE;
    read.bound = gate.use() == pb::Gate::USE_BOUND;
    read.threshold = gate.threshold();
    if (gate.on_fail() == pb::Gate::ON_FAIL_FAIL_JOB) read.on_fail = Gate::OnFail::kFailJob;
    if (gate.on_fail() == pb::Gate::ON_FAIL_WARN) read.on_fail = Gate::OnFail::kWarn;
    read.condition = proto::gate_condition(gate);
    out.gates.push_back(std::move(read));
  }
}

// The hash that ties a checkpoint to its job: of the spec alone, in deterministic wire form. Paths,
// thread count and attempt are the machine's business and may change between attempts.
std::string hash_of(const pb::FineTuningJobSpec& spec) {
  return base::sha256_hex(proto::deterministic_bytes(spec));
}

Ranks read_ranks(const Start& start) {
  const uint32_t ranks = std::max(1u, start.ranks());
  if (ranks > kMostRanks) {
    throw bad_spec("ranks", "must be between 0 and " + std::to_string(kMostRanks) + ", got " +
                                std::to_string(ranks));
  }
  if (start.rank() >= ranks) {
    throw bad_spec("rank", "must be below ranks = " + std::to_string(ranks) + ", got " +
                               std::to_string(start.rank()));
  }
  if (ranks > 1 && start.rendezvous_file().empty())
    throw bad_spec("rendezvous_file", "must be a new file that all ranks are given");
  if (ranks > 1 && (start.heads_only() || start.probe_only() || start.hold()))
    throw bad_spec("ranks", "must be 1 with heads_only, probe_only or hold, got " +
                                std::to_string(ranks) + ": these do no update of the job");
  return {static_cast<int32_t>(start.rank()), static_cast<int32_t>(ranks), start.rendezvous_file()};
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
  out.probe_path = start.probe_path();
  out.probe_sha256 = start.probe_sha256();
  out.calibration_path = start.calibration_path();
  out.calibration_sha256 = start.calibration_sha256();
  out.base_weights_sha256 = start.base_weights_sha256();
  out.attempt = static_cast<int32_t>(std::max(1u, start.attempt()));
  out.oom_retries = static_cast<int32_t>(start.oom_retries());
  if (start.threads() > 4096) {
    throw bad_spec("threads", "must be between 0 and 4096, got " + std::to_string(start.threads()));
  }
  out.threads = static_cast<int32_t>(start.threads());
  out.ranks = read_ranks(start);
  out.prefix_cache_dir = start.prefix_cache_dir();
  out.prefix_cache_owner = start.prefix_cache_owner();
  if (start.has_prefix_cache_bytes()) {
    if (start.prefix_cache_bytes() < 0) {
      throw bad_spec("prefix_cache_bytes",
                     "must be ≥ 0, got " + std::to_string(start.prefix_cache_bytes()));
    }
    out.prefix_cache_bytes = start.prefix_cache_bytes();
  }
  if (out.model_dir.empty())
    throw bad_spec("model_dir", "must be the Hugging Face folder of the base model");
  if (out.training_path.empty()) throw bad_spec("training_path", "must be a data file");

  out.start_adapter_dir = start.start_adapter_dir();
  out.start_adapter =
      start.start_adapter().empty() ? out.start_adapter_dir.string() : start.start_adapter();
  out.start_adapter_sha256 = start.start_adapter_sha256();

  const auto& spec = start.spec();
  if (spec.model().starts_with("ft:") && !out.goes_on()) {
    throw bad_spec("start_adapter_dir",
                   "must be the folder of " + spec.model() + ", from which the job goes on");
  }
  // Limits and enum numbers, once for all that is read below and by the scheduler's own check.
  if (const auto bad = proto::bad_values(spec); !bad.empty())
    throw bad_spec(bad.front().path, bad.front().what);
  if (const auto bad = proto::conflicts(spec); !bad.empty())
    throw bad_spec(bad.front().path, bad.front().what);
  if (spec.watchdog().base_guard().has_probe_file() && out.probe_path.empty())
    throw bad_spec("probe_path", "must be the file that watchdog.base_guard.probe_file names");
  if (spec.dex().head_selection().calibration().has_file() && out.calibration_path.empty()) {
    throw bad_spec("calibration_path",
                   "must be the file that dex.head_selection.calibration.file names");
  }
  detail::read_method(spec, out);
  out.dex.first_layer = spec.hyperparameters().first_layer();
  out.hyperparameters.learning_rate = model::usual_learning_rate(out.dex.train);
  read_rates(spec.hyperparameters(), out.hyperparameters);
  read_sizes(spec.hyperparameters(), out.hyperparameters);
  read_policies(spec, out);
  read_gates(spec, out);
  out.spec_sha256 = hash_of(spec);
  out.heads_only = start.heads_only();
  if (out.heads_only && (!out.dex.has_branch() || out.goes_on()))
    throw bad_spec("heads_only", "needs method dex on a base model: nothing else selects heads");
  out.probe_only = start.probe_only();
  if (out.probe_only && (out.heads_only || !out.checkpoint_dir.empty()))
    throw bad_spec("probe_only", "can't be together with heads_only or checkpoint_dir");
  out.hold = start.hold();
  if (out.hold && (out.heads_only || out.probe_only))
    throw bad_spec("hold", "can't be together with heads_only or probe_only");
  return out;
}

}  // namespace

JobSpec parse_spec_json(const std::string& json, const std::string& source) {
  Start start;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &start);
  if (!status.ok())
    throw bad_spec(source, "not a TrainerStart message in JSON: " + std::string(status.message()));
  if (proto::has_task_gates(start.spec())) {
    throw bad_spec(
        "gates",
        "with an evaluation need an agent, which runs its task after the training; alone, "
        "measure final/ with dex-engine evaluate");
  }
  return from_message(start);
}

JobSpec parse_spec_bytes(const std::string& bytes) {
  Start start;
  if (!start.ParseFromString(bytes)) throw bad_spec("start", "not a TrainerStart message");
  return from_message(start);
}

}  // namespace dex::train
