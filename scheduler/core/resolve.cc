#include "scheduler/core/resolve.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "proto/gates.h"
#include "scheduler/core/advice.h"
#include "scheduler/core/check_spec.h"
#include "scheduler/core/data_groups.h"
#include "scheduler/core/fields.h"
#include "scheduler/core/marks.h"
#include "scheduler/core/methods.h"
#include "scheduler/core/presets.h"
#include "scheduler/core/resolve_form.h"

namespace dex::core {

namespace {

using dex::v1::EffectiveConfig;
using dex::v1::FineTuningJobSpec;
using dex::v1::Hyperparameters;
using dex::v1::Lambda;

// The other values that a choice needs which the preset did not make: COSINE its ends, THRESHOLD
// its thresholds, BOTTLENECK its width (api.md §3; by size: method.md §5). Those of choices that
// nobody made are dropped again as unused.
void add_partners(SizeClass size, FineTuningJobSpec& spec) {
  const FineTuningJobSpec by_size = preset("auto", size).value().spec();
  auto& dex = *spec.mutable_dex();
  dex.mutable_lambda()->set_start(by_size.dex().lambda().start());
  dex.mutable_lambda()->set_end(by_size.dex().lambda().end());
  dex.mutable_lambda()->set_learn_init(0);
  spec.mutable_hyperparameters()->set_lambda_learning_rate(1e-4);
  auto& heads = *dex.mutable_head_selection();
  heads.set_fraction(0.5);
  heads.set_tau(by_size.dex().head_selection().tau());
  heads.set_eta(by_size.dex().head_selection().eta());
  heads.set_entropy_unit(by_size.dex().head_selection().entropy_unit());
  heads.set_contribution_unit(by_size.dex().head_selection().contribution_unit());
  dex.mutable_bottleneck()->set_width_ratio(1.5);
  dex.mutable_bottleneck()->set_scope(dex::v1::DexMethod::Bottleneck::SCOPE_PER_HEAD);
  dex.mutable_bottleneck()->set_activation(dex::v1::DexMethod::Bottleneck::ACTIVATION_NONE);
}

// Values that hold whatever the preset (api.md §3).
FineTuningJobSpec defaults(SizeClass size) {
  FineTuningJobSpec spec;
  add_partners(size, spec);
  spec.set_priority(4);
  spec.set_max_retries(2);
  spec.set_deadline_seconds(0);
  spec.set_auto_start(true);
  spec.set_skip_budget_ratio(0.01);
  auto& hyper = *spec.mutable_hyperparameters();
  hyper.set_max_steps(0);
  hyper.set_packing(true);
  hyper.set_group_by(Hyperparameters::GROUP_BY_NONE);
  spec.mutable_checkpoints()->set_every_seconds(900);
  spec.mutable_checkpoints()->set_keep_last(2);
  spec.mutable_checkpoints()->set_keep_best(true);
  auto& early = *spec.mutable_early_stopping();
  early.set_enabled(false);
  early.set_patience(3);
  early.set_min_delta(0);
  early.set_warmup_evals(1);
  early.set_restore_best(true);
  spec.mutable_watchdog()->set_non_finite_patience(3);
  spec.mutable_watchdog()->set_max_rollbacks(1);
  spec.mutable_watchdog()->set_stall_seconds(600);
  spec.mutable_watchdog()->set_loss_factor(3);
  spec.mutable_watchdog()->set_loss_patience(20);
  spec.mutable_watchdog()->set_on_trip(v1::WatchdogOptions::ON_TRIP_ROLLBACK);
  auto& guard = *spec.mutable_watchdog()->mutable_base_guard();
  guard.set_kl_max(0);
  guard.set_every_evals(1);
  guard.set_on_trip(v1::BaseGuardOptions::ON_TRIP_FAIL);
  spec.mutable_dex()->set_start(v1::DexMethod::START_IDENTITY);
  spec.mutable_dex()->set_allow_large_projection(false);
  spec.mutable_dex()->mutable_head_selection()->set_soft_floor(0);
  return spec;
}

// The recipe of method.md §2.3 with a preset's rates, for a job that has no branch.
FineTuningJobSpec recipe_without_branch(const v1::Preset& preset) {
  FineTuningJobSpec spec = preset.spec();
  spec.clear_dex();
  spec.mutable_hyperparameters()->clear_branch_learning_rate();
  spec.mutable_hyperparameters()->clear_lambda_learning_rate();
  return spec;
}

// 0 with a validation file or below 50 rows, else 5 %, at most 2000 rows, at least 10 (api.md §3).
double automatic_split(const ResolveInput& input) {
  if (input.validation || input.training.rows < 50) return 0.0;
  const double rows = static_cast<double>(input.training.rows);
  return std::clamp(std::min(0.05 * rows, 2000.0), 10.0, rows) / rows;
}

// Rows of up to 1,024 tokens unless the preset is made for long ones: memory and time grow with the
// square beyond.
uint32_t automatic_length(const ResolveInput& input, const FineTuningJobSpec& spec) {
  const bool long_rows = spec.dex().preset().starts_with("long_text") ||
                         spec.kvo_only().preset().starts_with("long_text");
  const int64_t most = std::min<int64_t>(input.model.context_length(), long_rows ? 4096 : 1024);
  // bytes / 4 may be half of the true count for text that the tokenizer does not know well.
  const int64_t needed = (2 * input.training.longest_row_tokens + 63) / 64 * 64;
  return static_cast<uint32_t>(std::clamp<int64_t>(needed, std::min<int64_t>(128, most), most));
}

// The largest power of two up to 64 that leaves about 200 updates (api.md §3).
uint32_t automatic_batch(const FineTuningJobSpec& spec, const ResolveInput& input) {
  FineTuningJobSpec one = spec;
  one.mutable_hyperparameters()->set_batch_size(1);
  one.mutable_hyperparameters()->set_max_steps(0);
  const int64_t sequences =
      workload(one, input.training, input.validation ? &*input.validation : nullptr).updates;
  uint32_t batch = 1;
  while (batch < 64 && sequences / (2 * batch) >= 200) batch *= 2;
  return batch;
}

// Values that depend on data and model; each only where nobody has set one. Order matters: later
// ones use earlier.
void fill_automatic(const ResolveInput& input, FineTuningJobSpec& spec, Sources& sources) {
  const auto fill = [&](auto set) {
    FineTuningJobSpec value;
    set(value, *value.mutable_hyperparameters());
    fill_unset(value, spec, "AUTO", sources);
  };
  const bool text = input.training.format == dex::v1::FILE_FORMAT_TEXT;
  fill([&](auto& s, auto&) { s.set_seed(input.seed); });
  fill([&](auto& s, auto&) { s.set_pool(input.default_pool); });
  if (spec.has_diff()) {  // the gradient of a norm at 0 is of no use (method.md §8.4)
    fill([&](auto& s, auto&) {
      s.mutable_diff()->set_init(input.model.qk_norm() ? dex::v1::DiffMethod::INIT_MIRROR
                                                       : dex::v1::DiffMethod::INIT_ZERO);
    });
  }
  if (!input.validation) {
    fill([&](auto& s, auto&) { s.set_validation_split(automatic_split(input)); });
  }
  fill([&](auto&, auto& h) {
    h.set_truncation(text ? Hyperparameters::TRUNCATION_CHUNK : Hyperparameters::TRUNCATION_RIGHT);
  });
  fill([&](auto&, auto& h) { h.set_train_on_inputs(text); });
  fill([&](auto&, auto& h) { h.set_max_seq_length(automatic_length(input, spec)); });
  fill([&](auto&, auto& h) { h.set_batch_size(automatic_batch(spec, input)); });
  // 512 rows of a matrix product already run at full speed; more only costs memory (performance.md
  // §3).
  fill([&](auto&, auto& h) {
    h.set_micro_batch_size(
        std::clamp<uint32_t>(512 / std::max(1u, spec.hyperparameters().max_seq_length()), 1,
                             spec.hyperparameters().batch_size()));
  });
}

// Scales the rates that the user did not give. The multiplier goes: the rates say what is used, and
// resolving the effective spec again must not scale them twice. They count as the user's then.
void apply_multiplier(FineTuningJobSpec& spec, Sources& sources) {
  auto& hyper = *spec.mutable_hyperparameters();
  if (!hyper.has_learning_rate_multiplier()) return;
  const auto scaled = [&, factor = hyper.learning_rate_multiplier()](const char* name,
                                                                     double rate) {
    std::string& source = sources[std::string("hyperparameters.") + name];
    if (source == "USER") return rate;
    source = "USER";
    return rate * factor;
  };
  if (hyper.has_learning_rate())
    hyper.set_learning_rate(scaled("learning_rate", hyper.learning_rate()));
  if (hyper.has_branch_learning_rate()) {
    hyper.set_branch_learning_rate(scaled("branch_learning_rate", hyper.branch_learning_rate()));
  }
  if (hyper.has_lambda_learning_rate()) {
    hyper.set_lambda_learning_rate(scaled("lambda_learning_rate", hyper.lambda_learning_rate()));
  }
  hyper.clear_learning_rate_multiplier();
  sources.erase("hyperparameters.learning_rate_multiplier");
}

// Ten evaluations a run that together cost at most about a sixth of its training (a scored token is
// 0.4 of a trained one), but never fewer tokens than branch_effect needs (method.md §2.6); a
// checkpoint with each.
void fill_cadence(const Workload& work, FineTuningJobSpec& spec, Sources& sources) {
  FineTuningJobSpec value;
  auto& evaluation = *value.mutable_evaluation();
  evaluation.set_every_steps(static_cast<uint32_t>(std::max<int64_t>(1, work.updates / 10)));
  evaluation.set_max_tokens(static_cast<uint32_t>(
      std::clamp<int64_t>(work.tokens_per_update * work.updates / 25, 4096, 200'000)));
  fill_unset(value, spec, "AUTO", sources);
  value.mutable_checkpoints()->set_every_steps(spec.evaluation().every_steps());
  fill_unset(value, spec, "AUTO", sources);
}

// N, where it is no guess.
std::optional<int64_t> given_updates(const Workload& work) {
  return work.updates_given ? std::optional(work.updates) : std::nullopt;
}

// T may be a number or a share of N, and ends with the run (method.md §3.3). Where N is a guess, T
// stays what it is: a guess that is too low would cut it below the true N for good, so the trainer,
// which has counted the rows, clamps it.
void fix_annealing(std::optional<int64_t> given, FineTuningJobSpec& spec, Resolved& result) {
  const Workload& work = result.workload;
  const Lambda& asked = spec.dex().lambda();
  if (asked.anneal_case() != Lambda::kAnnealSteps || asked.anneal_steps() <= work.updates) return;
  const std::string longer = "annealing_clamped: anneal_steps " +
                             std::to_string(asked.anneal_steps()) + " > " + updates_text(work);
  if (!given) {
    result.warnings.push_back(longer +
                              ": the job will use as many as it has, counted at its start");
    return;
  }
  result.warnings.push_back(longer + ": using " + std::to_string(*given));
  spec.mutable_dex()->mutable_lambda()->set_anneal_steps(*given);
  (*result.config.mutable_sources())["dex.lambda.anneal_steps"] = "CLAMPED";
}

// Fills in what the preset says: dex's own; of kvo_only the rates that dex would have with it, so
// that the two differ in the branch alone (method.md §2.7); other methods, and kvo_only without a
// preset, take the rates of the base's size class.
base::Status fill_from_preset(SizeClass size, FineTuningJobSpec& spec, Sources& sources,
                              EffectiveConfig& config) {
  const bool control = spec.kvo_only().has_preset();
  const std::string wanted = control ? spec.kvo_only().preset() : spec.dex().preset();
  const auto found = preset(wanted, size);
  if (!found.ok() && control) {
    const base::Status& why = found.status();
    return base::Status(why.code(), why.reason(), why.message())
        .with_violation("kvo_only.preset", why.message());
  }
  DEX_RETURN_IF_ERROR(found.status());
  const v1::Preset& chosen = *found;
  if (spec.has_dex()) {
    spec.mutable_dex()->set_preset(chosen.name());
    if (!sources.contains("dex.preset")) sources["dex.preset"] = "AUTO";
    fill_unset(chosen.spec(), spec, "PRESET", sources);
  } else {
    if (control) spec.mutable_kvo_only()->set_preset(chosen.name());
    fill_unset(recipe_without_branch(chosen), spec, control ? "PRESET" : "DEFAULT", sources);
  }
  if (spec.has_dex() || control) config.set_preset_version(chosen.version());
  return {};
}

}  // namespace

base::Result<Resolved> resolve(const ResolveInput& input) {
  DEX_RETURN_IF_ERROR(to_status(check_values(input.spec)));
  const SizeClass size = size_class(input.model.parameters());

  Resolved result;
  FineTuningJobSpec spec = input.spec;
  Sources sources;
  for_each_set_field(spec, [&](const std::string& path) { sources[path] = "USER"; });
  if (input.start) DEX_RETURN_IF_ERROR(take_over(*input.start, spec, sources));
  if (spec.method_case() == FineTuningJobSpec::METHOD_NOT_SET) spec.mutable_dex();

  fill_unset(method_defaults(spec, size), spec, "AUTO", sources);
  DEX_RETURN_IF_ERROR(fill_from_preset(size, spec, sources, result.config));
  fill_unset(defaults(size), spec, "DEFAULT", sources);
  if (spec.has_dex()) {
    DEX_RETURN_IF_ERROR(to_status(resolve_form(*spec.mutable_dex(), sources, result.warnings)));
  }
  DEX_RETURN_IF_ERROR(to_status(drop_unused(spec, sources)));
  proto::fill_gates(spec);
  fill_gate_tasks(spec, input.gate_files);
  apply_multiplier(spec, sources);
  fill_automatic(input, spec, sources);

  result.workload = workload(spec, input.training, input.validation ? &*input.validation : nullptr);
  const auto updates = given_updates(result.workload);
  fill_cadence(result.workload, spec, sources);
  DEX_RETURN_IF_ERROR(to_status(check_resolved(spec, input.model, updates)));
  DEX_RETURN_IF_ERROR(to_status(check_groups(spec, input.training)));
  if (std::string advice = group_advice(spec, input.training); !advice.empty())
    result.warnings.push_back(std::move(advice));
  result.gate_flops = gate_flops(spec, input.model, input.gate_files);

  mark_sources(spec, size, sources);
  result.config.mutable_sources()->insert(sources.begin(), sources.end());
  fix_annealing(updates, spec, result);
  *result.config.mutable_spec() = std::move(spec);
  for (auto& warning : advice_at_creation(result, input.model))
    result.warnings.push_back(std::move(warning));
  return result;
}

}  // namespace dex::core
