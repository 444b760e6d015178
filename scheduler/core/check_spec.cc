#include "scheduler/core/check_spec.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <sstream>

#include "proto/spec_values.h"
#include "scheduler/core/methods.h"

namespace dex::core {

namespace {

using dex::v1::DexMethod;
using dex::v1::FineTuningJobSpec;
using dex::v1::HeadSelection;
using dex::v1::Lambda;

// Collects problems; `path` is the field's name in the reply.
class Collector {
 public:
  void add(std::string reason, const std::string& path, std::string what) {
    problems.push_back({std::move(reason), path, std::move(what)});
  }
  // The values of `spec` each by itself (proto/spec_values.h).
  void add_bad_values(const FineTuningJobSpec& spec) {
    for (proto::BadValue& bad : proto::bad_values(spec))
      add(bad.out_of_range ? "VALUE_OUT_OF_RANGE" : "INVALID_FIELD", bad.path, std::move(bad.what));
  }
  std::vector<Problem> problems;
};

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

// A field and when it has an effect.
struct Effect {
  std::string path;
  std::function<bool(const FineTuningJobSpec&)> applies;
  std::string needs;
};

const std::vector<Effect>& effects() {
  const auto by_cosine = [](const auto& s) {
    return s.dex().lambda().schedule() == Lambda::SCHEDULE_COSINE;
  };
  const auto by_paper = [](const auto& s) {
    return s.dex().lambda().schedule() == Lambda::SCHEDULE_PAPER_EQ4;
  };
  const auto criterion = [](std::set<HeadSelection::Criterion> wanted) {
    return [wanted](const FineTuningJobSpec& s) {
      return wanted.contains(s.dex().head_selection().criterion());
    };
  };
  const auto measured =
      criterion({HeadSelection::CRITERION_ENTROPY, HeadSelection::CRITERION_IMPORTANCE,
                 HeadSelection::CRITERION_THRESHOLD});
  const auto threshold = criterion({HeadSelection::CRITERION_THRESHOLD});
  const auto bottleneck = [](const auto& s) {
    return s.dex().projection() == DexMethod::PROJECTION_BOTTLENECK;
  };
  const auto with_branch = [](const auto& s) { return s.has_dex(); };
  const auto with_lora = [](const auto& s) { return s.dex().train() == DexMethod::TRAIN_LORA_DEX; };
  const auto trains_more = [](const auto& s) {
    return s.dex().train() != DexMethod::TRAIN_DEX_ONLY;
  };
  static const std::vector<Effect> list = {
      {"dex.lambda.init", by_paper, "lambda.schedule PAPER_EQ4"},
      {"dex.lambda.learn_init", by_paper, "lambda.schedule PAPER_EQ4"},
      {"hyperparameters.lambda_learning_rate",
       [=](const auto& s) { return with_branch(s) && by_paper(s); }, "lambda.schedule PAPER_EQ4"},
      {"dex.lambda.start", by_cosine, "lambda.schedule COSINE"},
      {"dex.lambda.end", by_cosine, "lambda.schedule COSINE"},
      {"dex.head_selection.fraction",
       criterion({HeadSelection::CRITERION_ENTROPY, HeadSelection::CRITERION_IMPORTANCE}),
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
      {"dex.head_selection.reselect_every_steps", threshold, "criterion THRESHOLD"},
      {"dex.bottleneck.width_ratio", bottleneck, "projection BOTTLENECK"},
      {"dex.bottleneck.scope", bottleneck, "projection BOTTLENECK"},
      {"dex.w_d_init", [=](const auto& s) { return !bottleneck(s); }, "another projection"},
      {"hyperparameters.branch_learning_rate", with_branch, "method dex"},
      {"hyperparameters.learning_rate", trains_more, "a train other than DEX_ONLY"},
      {"dex.lora.r", with_lora, "train LORA_DEX"},
      {"dex.lora.alpha", with_lora, "train LORA_DEX"},
      {"dex.lora.dropout", with_lora, "train LORA_DEX"},
      {"dex.lora.target_modules", with_lora, "train LORA_DEX"},
      {"dex.lora.use_rslora", with_lora, "train LORA_DEX"},
  };
  return list;
}

void check_head_lists(const HeadSelection& heads, const dex::v1::Model& model, Collector& check) {
  std::set<uint32_t> layers;
  for (const auto& entry : heads.heads()) {
    const std::string layer = "layer " + std::to_string(entry.layer());
    if (static_cast<int32_t>(entry.layer()) >= model.layers()) {
      check.add("VALUE_OUT_OF_RANGE", "dex.head_selection.heads",
                layer + " of " + std::to_string(model.layers()));
    }
    if (!layers.insert(entry.layer()).second) {
      check.add("INVALID_FIELD", "dex.head_selection.heads", layer + " is given twice");
    }
    std::set<uint32_t> seen;
    for (const uint32_t head : entry.heads()) {
      if (static_cast<int32_t>(head) >= model.query_heads()) {
        check.add("VALUE_OUT_OF_RANGE", "dex.head_selection.heads",
                  layer + ": head " + std::to_string(head) + " of " +
                      std::to_string(model.query_heads()));
      } else if (!seen.insert(head).second) {
        check.add("INVALID_FIELD", "dex.head_selection.heads",
                  layer + ": head " + std::to_string(head) + " is given twice");
      }
    }
  }
}

// m = round(width_ratio·d) of method.md §3.2 must leave something to project to.
void check_bottleneck(const DexMethod& dex, const dex::v1::Model& model, Collector& check) {
  if (dex.projection() != DexMethod::PROJECTION_BOTTLENECK) return;
  const double ratio = dex.bottleneck().width_ratio();
  if (ratio * model.head_dim() >= 0.5) return;
  std::ostringstream what;
  what << ratio << " of head_dim " << model.head_dim() << " leaves no column: give at least "
       << 0.5 / model.head_dim();
  check.add("VALUE_OUT_OF_RANGE", "dex.bottleneck.width_ratio", what.str());
}

// method.md §2.5: configurations in which the branch can never get a gradient.
void check_dead_points(const DexMethod& dex, int64_t updates, Collector& check) {
  const Lambda& lambda = dex.lambda();
  // A bottleneck has a start of its own: one factor 0, so the branch is 0 whatever w_d_init says.
  const bool linear = dex.w_d_init() == DexMethod::BRANCH_INIT_LINEAR &&
                      dex.projection() != DexMethod::PROJECTION_BOTTLENECK;
  if (lambda.schedule() == Lambda::SCHEDULE_PAPER_EQ4) {
    const int64_t anneal =
        lambda.anneal_case() == Lambda::kAnnealSteps
            ? std::min(lambda.anneal_steps(), updates)
            : std::llround(lambda.anneal_fraction() * static_cast<double>(updates));
    if (!linear && lambda.learn_init() == 0 && (anneal <= 1 || updates <= 1)) {
      check.add(
          "DEAD_CONFIGURATION", "dex.lambda",
          "branch can't start: give anneal_steps ≥ 2, lambda.learn_init ≠ 0 or w_d_init LINEAR "
          "(anneal_steps is " +
              std::to_string(anneal) + " of " + std::to_string(updates) + " updates)");
    }
  } else {
    if (lambda.start() == 0 && lambda.end() == 0) {
      check.add("DEAD_CONFIGURATION", "dex.lambda",
                "lambda is 0 for the whole job: give start or end ≠ 0");
    }
    if (linear && lambda.start() != 0) {
      check.add("CONFLICTING_FIELDS", "dex.w_d_init",
                "LINEAR with lambda.start ≠ 0 would change the model before the first step; use "
                "ZEROS or start 0");
    }
  }
  const auto& heads = dex.head_selection();
  const bool none = heads.criterion() == HeadSelection::CRITERION_EXPLICIT &&
                    std::all_of(heads.heads().begin(), heads.heads().end(),
                                [](const auto& entry) { return entry.heads().empty(); });
  if (none && dex.train() == DexMethod::TRAIN_DEX_ONLY) {
    check.add("DEAD_CONFIGURATION", "dex.head_selection.heads",
              "no head is selected and train is DEX_ONLY: nothing would be trained");
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
                                    int64_t updates) {
  Collector check;
  check.add_bad_values(spec);  // also of the values that were chosen here
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
  if (spec.has_dex()) {
    check_head_lists(spec.dex().head_selection(), model, check);
    check_bottleneck(spec.dex(), model, check);
    check_dead_points(spec.dex(), updates, check);
  }
  return check.problems;
}

}  // namespace dex::core
