#include "scheduler/core/check_dex.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <string>

#include "scheduler/core/dex_shape.h"
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
    check.add("VALUE_OUT_OF_RANGE", "dex.projection",
              "adds " + std::to_string(added) + " parameters, " +
                  show(std::round(1000 * share) / 10) +
                  " % of the base; above 10 % it needs allow_large_projection");
  }
}

// λ at the first update: what a start that is the base needs to be 0, or D to be 0 (method.md
// §3.3).
double first_lambda(const Lambda& lambda, int64_t anneal) {
  switch (lambda.schedule()) {
    case Lambda::SCHEDULE_COSINE:
      return anneal == 0 ? lambda.end() : lambda.start();
    case Lambda::SCHEDULE_CONSTANT:
      return lambda.value();
    case Lambda::SCHEDULE_LEARNED:
      return lambda.learn_init();
    default:
      return anneal == 0 ? lambda.learn_init() : 0.0;
  }
}

void check_start(const DexMethod& dex, int64_t anneal, Collector& check) {
  const double first = first_lambda(dex.lambda(), anneal);
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
void check_dead_points(const DexMethod& dex, int64_t updates, Collector& check) {
  const Lambda& lambda = dex.lambda();
  const int64_t anneal =
      lambda.anneal_case() == Lambda::kAnnealSteps
          ? std::min(lambda.anneal_steps(), updates)
          : std::llround(lambda.anneal_fraction() * static_cast<double>(updates));
  const bool zero = dex.start() != DexMethod::START_LITERAL &&
                    (!has_map(dex) || dex.w_d_init() != DexMethod::BRANCH_INIT_LINEAR);
  const std::string linear = has_map(dex) ? " or w_d_init = linear" : "";
  const bool stuck = zero && lambda.learn_init() == 0;
  if (lambda.schedule() == Lambda::SCHEDULE_PAPER_EQ4 && stuck && (anneal <= 1 || updates <= 1)) {
    check.add("DEAD_CONFIGURATION", "dex.lambda",
              "branch can't start: give anneal_steps ≥ 2" +
                  std::string(linear.empty() ? " or" : ",") + " lambda_learn_init ≠ 0" + linear +
                  " (anneal_steps is " + std::to_string(anneal) + " of " + std::to_string(updates) +
                  " updates)");
  }
  if (lambda.schedule() == Lambda::SCHEDULE_LEARNED && stuck) {
    check.add("DEAD_CONFIGURATION", "dex.lambda",
              "branch can't start: give lambda_learn_init ≠ 0" + linear);
  }
  const bool cosine = lambda.schedule() == Lambda::SCHEDULE_COSINE;
  const bool constant = lambda.schedule() == Lambda::SCHEDULE_CONSTANT;
  if ((cosine && lambda.start() == 0 && lambda.end() == 0) || (constant && lambda.value() == 0)) {
    check.add("DEAD_CONFIGURATION", "dex.lambda",
              std::string("lambda is 0 for the whole job: give ") +
                  (cosine ? "start or end" : "value") + " ≠ 0");
  }
  check_start(dex, anneal, check);
  const auto& heads = dex.head_selection();
  const bool none = heads.criterion() == HeadSelection::CRITERION_EXPLICIT &&
                    std::all_of(heads.heads().begin(), heads.heads().end(),
                                [](const auto& entry) { return entry.heads().empty(); });
  if (none && heads.soft_floor() == 0 && dex.train() == DexMethod::TRAIN_DEX_ONLY) {
    check.add("DEAD_CONFIGURATION", "dex.head_selection.heads",
              "no head is selected and train is DEX_ONLY: nothing would be trained");
  }
}

}  // namespace

void check_dex(const DexMethod& dex, const dex::v1::Model& model, bool goes_on, int64_t updates,
               Collector& check) {
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
  // An adapter's branch has started already.
  if (!goes_on) check_dead_points(dex, updates, check);
}

}  // namespace dex::core
