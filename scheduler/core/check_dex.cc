#include "scheduler/core/check_dex.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "scheduler/core/dex_shape.h"
#include "services/base/lambda_schedule.h"
#include "services/base/method_constants.h"

namespace dex::core {

namespace {

using dex::v1::DexMethod;
using dex::v1::HeadSelection;
using dex::v1::Lambda;

std::string show(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
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

// The one choice whose value nothing else can give.
void check_needed(const DexMethod& dex, Collector& check) {
  const Lambda& lambda = dex.lambda();
  if (lambda.schedule() == Lambda::SCHEDULE_CONSTANT && !lambda.has_value())
    check.add("MISSING_FIELD", "dex.lambda.value", "is needed with schedule CONSTANT");
}

// What the branch adds to the model's parameters, against the limit of method.md §3.6, and a
// bottleneck that would have no column.
void check_projection(const DexMethod& dex, const dex::v1::Model& model, Collector& check) {
  const int64_t width = projected_width(dex, model);
  if (has_bottleneck(dex) && dex.bottleneck().width_ratio() * static_cast<double>(width) < 0.5) {
    check.add("VALUE_OUT_OF_RANGE", "dex.bottleneck.width_ratio",
              show(dex.bottleneck().width_ratio()) +
                  (width == model.head_dim() ? " of head_dim " : " of H·d ") +
                  std::to_string(width) + " leaves no column: give at least " +
                  show(0.5 / static_cast<double>(width)));
  }
  const int64_t added = branch_parameters(dex, model);
  const double share = static_cast<double>(added) / static_cast<double>(model.parameters());
  if (model.parameters() > 0 && share > base::kLargeBranch && !dex.allow_large_projection()) {
    check.add(
        "VALUE_OUT_OF_RANGE", "dex.projection",
        "adds " + std::to_string(added) + " parameters, " + show(std::round(1000 * share) / 10) +
            " % of the base; above 10 % it needs allow_large_projection, or projection SHARED or "
            "PER_HEAD, or a BOTTLENECK of lower width_ratio");
  }
}

base::Schedule schedule_of(const Lambda& lambda) {
  switch (lambda.schedule()) {
    case Lambda::SCHEDULE_COSINE:
      return base::Schedule::kSeedCosine;
    case Lambda::SCHEDULE_CONSTANT:
      return base::Schedule::kConstant;
    case Lambda::SCHEDULE_LEARNED:
      return base::Schedule::kLearned;
    default:
      return base::Schedule::kPaperEq4;
  }
}

// λ as the trainer will compute it; T ends with the run.
base::LambdaOptions lambda_options(const Lambda& lambda, std::optional<int64_t> given) {
  const int64_t updates = given.value_or(base::kManyUpdates);
  base::LambdaOptions out;
  out.schedule = schedule_of(lambda);
  out.anneal_steps = lambda.anneal_case() == Lambda::kAnnealSteps
                         ? std::min(lambda.anneal_steps(), updates)
                         : std::llround(lambda.anneal_fraction() * static_cast<double>(updates));
  if (lambda.has_init()) out.init = lambda.init();
  out.learn_init = lambda.learn_init();
  out.start = lambda.start();
  out.end = lambda.end();
  out.value = lambda.value();
  return out;
}

// What a start that is the base needs: λ = 0 at the first update, or D = 0 (method.md §3.3).
void check_start(const DexMethod& dex, const base::LambdaOptions& lambda, Collector& check) {
  const double first = base::lambda_at(lambda, 0, 0, lambda.learn_init);
  const bool literal = dex.start() == DexMethod::START_LITERAL;
  if (literal && first == 0) {
    check.add(
        "CONFLICTING_FIELDS", "dex.start",
        "LITERAL needs λ ≠ 0 at the first update, and this schedule begins at 0: give another "
        "lambda.schedule or start IDENTITY");
  }
  if (!literal && first != 0 && dex.w_d_init() == DexMethod::BRANCH_INIT_LINEAR) {
    check.add("CONFLICTING_FIELDS", "dex.w_d_init",
              "LINEAR with λ ≠ 0 at the first update (" + show(first) +
                  ") would change the model before it; use ZEROS, λ 0 at the start, or start "
                  "LITERAL");
  }
}

// method.md §2.5: configurations in which the branch can never get a gradient.
void check_dead_points(const DexMethod& dex, std::optional<int64_t> updates, Collector& check) {
  const base::LambdaOptions lambda = lambda_options(dex.lambda(), updates);
  const bool linear = has_map(dex) && dex.w_d_init() == DexMethod::BRANCH_INIT_LINEAR;
  const base::BranchStart start = {
      .zero_difference = dex.start() != DexMethod::START_LITERAL && !linear,
      .has_map = has_map(dex)};
  const std::string dead = base::dead_point(lambda, start, updates);
  if (!dead.empty()) check.add("DEAD_CONFIGURATION", "dex.lambda", dead);
  check_start(dex, lambda, check);
  const auto& heads = dex.head_selection();
  const bool none = heads.criterion() == HeadSelection::CRITERION_EXPLICIT &&
                    std::all_of(heads.heads().begin(), heads.heads().end(),
                                [](const auto& entry) { return entry.heads().empty(); });
  if (none && heads.soft_floor() == 0 && dex.train() == DexMethod::TRAIN_DEX_ONLY) {
    check.add(
        "DEAD_CONFIGURATION", "dex.head_selection.heads",
        "no head is selected and train is DEX_ONLY: nothing would be trained; give heads, or a "
        "soft_floor above 0");
  }
}

// The same for a job that goes on from an adapter: its branch has started, but a fixed λ of 0 would
// keep it where it is.
void check_goes_on(const DexMethod& dex, std::optional<int64_t> updates, Collector& check) {
  const std::string dead = base::dead_point(lambda_options(dex.lambda(), updates),
                                            {.zero_difference = false, .goes_on = true}, updates);
  if (!dead.empty()) check.add("DEAD_CONFIGURATION", "model", dead);
}

}  // namespace

void check_dex(const DexMethod& dex, const dex::v1::Model& model, bool goes_on,
               std::optional<int64_t> updates, Collector& check) {
  if (model.differential()) {
    check.add(
        "CONFLICTING_FIELDS", "method",
        "dex has no defined meaning on a " + model.family() +
            ", which subtracts attention maps by itself: use kvo_only, lora, adapter or full");
    return;
  }
  check_needed(dex, check);
  check_head_lists(dex.head_selection(), model, check);
  check_projection(dex, model, check);
  if (goes_on) {
    check_goes_on(dex, updates, check);
  } else {
    check_dead_points(dex, updates, check);
  }
}

}  // namespace dex::core
