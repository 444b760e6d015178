#include "scheduler/core/check_spec.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <sstream>
#include <utility>

#include "proto/gates.h"
#include "scheduler/core/check_dex.h"
#include "scheduler/core/collector.h"
#include "scheduler/core/dex_shape.h"
#include "scheduler/core/gate_tasks.h"
#include "scheduler/core/methods.h"
#include "scheduler/core/warm_start.h"

namespace dex::core {

namespace {

using dex::v1::DexMethod;
using dex::v1::FineTuningJobSpec;
using dex::v1::HeadSelection;
using dex::v1::Lambda;

void check_targets(const dex::v1::LoraMethod& lora, const std::string& path, Collector& check) {
  std::set<std::string> seen;
  for (const std::string& target : lora.target_modules()) {
    const auto& known = linear_names();
    if (std::find(known.begin(), known.end(), target) == known.end()) {
      std::string names;
      for (const auto name : known) names += (names.empty() ? "" : ", ") + std::string(name);
      check.add("INVALID_FIELD", path, "\"" + target.substr(0, 64) + "\" is not one of " + names);
    } else if (!seen.insert(target).second) {
      check.add("INVALID_FIELD", path, target + " is given twice");
    }
  }
}

bool fits_alphabet(const std::string& text, size_t most, const std::string& extra) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || extra.find(c) != std::string::npos;
  });
}

void check_names(const FineTuningJobSpec& spec, Collector& check) {
  if (spec.model().empty()) check.add("MISSING_FIELD", "model", "is missing: name a base model");
  if (spec.training_file().empty()) {
    check.add("MISSING_FIELD", "training_file", "is missing: give the id of an uploaded file");
  }
  if (spec.has_suffix() && !fits_alphabet(spec.suffix(), 64, "._-")) {
    check.add("INVALID_FIELD", "suffix",
              "must be 1 to 64 letters, digits, '.', '_' or '-', got \"" + spec.suffix() + "\"");
  }
  if (spec.has_pool() && !fits_alphabet(spec.pool(), 32, "-")) {
    check.add("INVALID_FIELD", "pool",
              "must be 1 to 32 of a-z, 0-9 and '-', got \"" + spec.pool() + "\"");
  }
  if (spec.metadata_size() > 16) {
    check.add("TOO_LARGE", "metadata",
              "has " + std::to_string(spec.metadata_size()) + " pairs, 16 are allowed");
  }
  for (const auto& [key, value] : spec.metadata()) {
    if (key.size() > 64 || value.size() > 512) {
      check.add("TOO_LARGE", "metadata." + key.substr(0, 64),
                "key ≤ 64 and value ≤ 512 characters");
    }
  }
}

constexpr const char* kSelects =
    "a base model to start from, or reselect_every_steps: the heads are the adapter's";

// A field and when it has an effect.
struct Effect {
  std::string path;
  std::function<bool(const FineTuningJobSpec&)> applies;
  std::string needs;
};

const std::vector<Effect>& effects() {
  const auto schedule = [](std::set<Lambda::Schedule> wanted) {
    return [wanted](const FineTuningJobSpec& s) {
      return wanted.contains(s.dex().lambda().schedule());
    };
  };
  const auto by_cosine = schedule({Lambda::SCHEDULE_COSINE});
  const auto by_paper = schedule({Lambda::SCHEDULE_PAPER_EQ4});
  const auto learned = schedule({Lambda::SCHEDULE_PAPER_EQ4, Lambda::SCHEDULE_LEARNED});
  const auto anneals = schedule({Lambda::SCHEDULE_PAPER_EQ4, Lambda::SCHEDULE_COSINE});
  const auto criterion = [](std::set<HeadSelection::Criterion> wanted) {
    return [wanted](const FineTuningJobSpec& s) {
      return wanted.contains(s.dex().head_selection().criterion());
    };
  };
  const auto measured =
      criterion({HeadSelection::CRITERION_ENTROPY, HeadSelection::CRITERION_IMPORTANCE,
                 HeadSelection::CRITERION_THRESHOLD});
  const auto threshold = criterion({HeadSelection::CRITERION_THRESHOLD});
  const auto bottleneck = [](const auto& s) { return has_bottleneck(s.dex()); };
  const auto projects = [](const auto& s) { return has_projection(s.dex()); };
  const auto maps = [](const auto& s) { return has_map(s.dex()); };
  const auto with_branch = [](const auto& s) { return s.has_dex(); };
  const auto with_lora = [](const auto& s) { return s.dex().train() == DexMethod::TRAIN_LORA_DEX; };
  const auto from_base = [](const auto& s) { return !goes_on(s); };
  // A job that goes on from an adapter has its heads; it may select again on the way.
  const auto selects = [](const auto& s) {
    return !goes_on(s) || s.dex().head_selection().reselect_every_steps() > 0;
  };
  const auto stops_early = [](const auto& s) { return s.early_stopping().enabled(); };
  const auto rolls_back = [](const auto& s) {
    return s.watchdog().on_trip() == dex::v1::WatchdogOptions::ON_TRIP_ROLLBACK;
  };
  const auto guarded = [](const auto& s) { return s.watchdog().base_guard().kl_max() > 0; };
  const auto grouped = [](const auto& s) {
    const auto by = s.hyperparameters().group_by();
    return by == v1::Hyperparameters::GROUP_BY_TAG || by == v1::Hyperparameters::GROUP_BY_LANGUAGE;
  };
  const auto trains_more = [](const auto& s) {
    return s.dex().train() != DexMethod::TRAIN_DEX_ONLY;
  };
  static const std::vector<Effect> list = {
      {"dex.lambda.init", by_paper, "lambda.schedule PAPER_EQ4"},
      {"dex.lambda.learn_init", [=](const auto& s) { return learned(s) && !goes_on(s); },
       "lambda.schedule PAPER_EQ4 or LEARNED, and a base model to start from"},
      {"hyperparameters.lambda_learning_rate",
       [=](const auto& s) { return with_branch(s) && learned(s); },
       "lambda.schedule PAPER_EQ4 or LEARNED"},
      {"dex.lambda.value", schedule({Lambda::SCHEDULE_CONSTANT}), "lambda.schedule CONSTANT"},
      {"dex.lambda.anneal_fraction", anneals, "lambda.schedule PAPER_EQ4 or COSINE"},
      {"dex.lambda.anneal_steps", anneals, "lambda.schedule PAPER_EQ4 or COSINE"},
      {"dex.lambda.start", by_cosine, "lambda.schedule COSINE"},
      {"dex.lambda.end", by_cosine, "lambda.schedule COSINE"},
      {"dex.start", from_base, "a base model to start from"},
      {"dex.head_selection.criterion", selects, kSelects},
      {"dex.head_selection.fraction",
       [=](const auto& s) {
         return selects(s) && criterion({HeadSelection::CRITERION_ENTROPY,
                                         HeadSelection::CRITERION_IMPORTANCE})(s);
       },
       "criterion ENTROPY or IMPORTANCE"},
      {"dex.head_selection.tau", threshold, "criterion THRESHOLD"},
      {"dex.head_selection.eta", threshold, "criterion THRESHOLD"},
      {"dex.head_selection.entropy_unit", threshold, "criterion THRESHOLD"},
      {"dex.head_selection.contribution_unit", threshold, "criterion THRESHOLD"},
      {"dex.head_selection.heads", criterion({HeadSelection::CRITERION_EXPLICIT}),
       "criterion EXPLICIT"},
      {"dex.head_selection.calibration.n_sequences", measured, "a criterion that measures heads"},
      {"dex.head_selection.calibration.seq_length", measured, "a criterion that measures heads"},
      {"dex.head_selection.calibration.skip_rows", measured, "a criterion that measures heads"},
      {"dex.head_selection.calibration.file", measured, "a criterion that measures heads"},
      {"dex.head_selection.reselect_every_steps", threshold, "criterion THRESHOLD"},
      {"dex.projection", projects, "another form than UNIFORM_MAP, which has no projection"},
      {"dex.w_d_init", [=](const auto& s) { return maps(s) && from_base(s); },
       "a w_d (projection SHARED, PER_HEAD or DENSE) and a base model to start from"},
      {"dex.bottleneck.width_ratio", bottleneck, "projection BOTTLENECK"},
      {"dex.bottleneck.scope", bottleneck, "projection BOTTLENECK"},
      {"dex.bottleneck.activation", bottleneck, "projection BOTTLENECK"},
      {"early_stopping.patience", stops_early, "early_stopping.enabled"},
      {"early_stopping.min_delta", stops_early, "early_stopping.enabled"},
      {"early_stopping.warmup_evals", stops_early, "early_stopping.enabled"},
      {"early_stopping.restore_best", stops_early, "early_stopping.enabled"},
      {"watchdog.max_rollbacks", rolls_back, "watchdog.on_trip ROLLBACK"},
      {"watchdog.base_guard.every_evals", guarded, "watchdog.base_guard.kl_max above 0"},
      {"watchdog.base_guard.on_trip", guarded, "watchdog.base_guard.kl_max above 0"},
      {"watchdog.base_guard.probe_file", [](const auto& s) { return proto::needs_probe(s); },
       "watchdog.base_guard.kl_max above 0, or a gate on task base_guard"},
      {"hyperparameters.branch_learning_rate", with_branch, "method dex"},
      {"hyperparameters.group_weights", grouped, "hyperparameters.group_by TAG or LANGUAGE"},
      {"hyperparameters.learning_rate", trains_more, "a train other than DEX_ONLY"},
      {"dex.lora.r", with_lora, "train LORA_DEX"},
      {"dex.lora.alpha", with_lora, "train LORA_DEX"},
      {"dex.lora.dropout", with_lora, "train LORA_DEX"},
      {"dex.lora.target_modules", with_lora, "train LORA_DEX"},
      {"dex.lora.use_rslora", with_lora, "train LORA_DEX"},
  };
  return list;
}

// What can only be measured on held-out rows. The trainer refuses these too, where its split
// leaves none.
void check_held_out(const FineTuningJobSpec& spec, Collector& check) {
  if (spec.has_validation_file() || spec.validation_split() > 0) return;
  const auto needs = [&check](const std::string& path) {
    check.add("CONFLICTING_FIELDS", path,
              "needs held-out rows: give a validation_file, or a validation_split above 0");
  };
  if (spec.early_stopping().enabled()) needs("early_stopping.enabled");
  if (spec.watchdog().base_guard().kl_max() > 0) needs("watchdog.base_guard.kl_max");
  for (int i = 0; i < spec.gates_size(); ++i) {
    if (spec.gates(i).task() == "held_out") needs("gates[" + std::to_string(i) + "].task");
  }
}

// What the trainer refuses too (worker/model/second_map.h).
void check_diff(const dex::v1::DiffMethod& diff, const dex::v1::Model& model, Collector& check) {
  if (model.differential()) {
    check.add("CONFLICTING_FIELDS", "method",
              "diff has nothing to convert: " + model.name() +
                  " subtracts attention maps already; use kvo_only, lora, adapter or full");
  }
  if (model.qk_norm() && diff.init() == dex::v1::DiffMethod::INIT_ZERO) {
    check.add("CONFLICTING_FIELDS", "diff.init",
              "ZERO has no usable gradient on a " + model.family() +
                  ", which norms its queries: use MIRROR");
  }
}

}  // namespace

base::Status to_status(const std::vector<Problem>& problems) {
  if (problems.empty()) return {};
  std::string message;
  for (const Problem& problem : problems) {
    if (!message.empty()) message += "; ";
    message += problem.field + " " + problem.description;
  }
  base::Status status(base::Code::kInvalidArgument, problems.front().reason, message);
  for (const Problem& problem : problems) {
    status = std::move(status).with_violation(problem.field, problem.description);
  }
  return status;
}

std::vector<Problem> check_values(const FineTuningJobSpec& spec) {
  Collector check;
  check_names(spec, check);
  check.add_bad_values(spec);
  if (spec.has_validation_file() && spec.has_validation_split()) {
    check.add("CONFLICTING_FIELDS", "validation_split",
              "can't be given together with validation_file");
  }
  const auto& hyper = spec.hyperparameters();
  if (hyper.has_learning_rate() && hyper.has_learning_rate_multiplier()) {
    check.add("CONFLICTING_FIELDS", "hyperparameters.learning_rate_multiplier",
              "can't be given together with learning_rate; give one of them");
  }
  check_targets(spec.lora(), "lora.target_modules", check);
  check_targets(spec.dex().lora(), "dex.lora.target_modules", check);
  return check.problems;
}

std::vector<Problem> drop_unused(FineTuningJobSpec& spec, Sources& sources) {
  std::vector<Problem> problems;
  for (const Effect& effect : effects()) {
    if (!has_field(spec, effect.path) || effect.applies(spec)) continue;
    if (sources[effect.path] == "USER") {
      problems.push_back(
          {"UNUSED_FIELD", effect.path, "has no effect here: it needs " + effect.needs});
    } else {
      clear_field(spec, effect.path);
      sources.erase(effect.path);
    }
  }
  drop_empty(spec);
  return problems;
}

std::vector<Problem> check_resolved(const FineTuningJobSpec& spec, const dex::v1::Model& model,
                                    std::optional<int64_t> updates) {
  Collector check;
  check.add_bad_values(spec);  // also of the values that were chosen here
  check.add_conflicts(spec);
  const auto& hyper = spec.hyperparameters();
  if (static_cast<int64_t>(hyper.max_seq_length()) > model.context_length()) {
    check.add("VALUE_OUT_OF_RANGE", "hyperparameters.max_seq_length",
              "must be at most " + std::to_string(model.context_length()) + ", the context of " +
                  model.name() + ", got " + std::to_string(hyper.max_seq_length()));
  }
  if (hyper.micro_batch_size() > hyper.batch_size()) {
    check.add("VALUE_OUT_OF_RANGE", "hyperparameters.micro_batch_size",
              "must be at most batch_size " + std::to_string(hyper.batch_size()) + ", got " +
                  std::to_string(hyper.micro_batch_size()));
  }
  if (static_cast<int64_t>(hyper.first_layer()) >= model.layers()) {
    check.add("VALUE_OUT_OF_RANGE", "hyperparameters.first_layer",
              "must be below " + std::to_string(model.layers()) + ", the layers of " +
                  model.name() + ", got " + std::to_string(hyper.first_layer()));
  }
  check_held_out(spec, check);
  for (Problem& problem : check_gate_tasks(spec, model))
    check.problems.push_back(std::move(problem));
  if (spec.has_dex()) check_dex(spec.dex(), model, goes_on(spec), updates, check);
  if (spec.has_diff()) check_diff(spec.diff(), model, check);
  return check.problems;
}

}  // namespace dex::core
