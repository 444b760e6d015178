#include "scheduler/core/advice.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "scheduler/core/dex_shape.h"
#include "scheduler/core/methods.h"
#include "scheduler/core/presets.h"
#include "scheduler/core/resolve.h"

namespace dex::core {

namespace {

using dex::v1::DexMethod;
using dex::v1::Lambda;

std::string round_to_2_digits(double value) {
  std::ostringstream out;
  out << std::setprecision(2) << value;
  return out.str();
}

// F = Σ_u f(u) of method.md §2.2: about half of the updates for the cosine.
double rate_sum(const dex::v1::Hyperparameters& hyper, int64_t updates) {
  const double whole =
      hyper.lr_scheduler_type() == dex::v1::Hyperparameters::LR_SCHEDULER_CONSTANT ? 1.0 : 0.5;
  return whole * static_cast<double>(updates);
}

// reach(λ): what λ can be at the end, in size.
double lambda_reach(const dex::v1::FineTuningJobSpec& spec, int64_t updates) {
  const Lambda& lambda = spec.dex().lambda();
  if (lambda.schedule() == Lambda::SCHEDULE_COSINE) {
    return std::max(std::abs(lambda.start()), std::abs(lambda.end()));
  }
  if (lambda.schedule() == Lambda::SCHEDULE_CONSTANT) return std::abs(lambda.value());
  const auto& hyper = spec.hyperparameters();
  return std::abs(lambda.learn_init()) + hyper.lambda_learning_rate() * rate_sum(hyper, updates);
}

}  // namespace

double branch_reach(const Resolved& resolved, const dex::v1::Model& model) {
  const auto& spec = resolved.config.spec();
  const double reach = lambda_reach(spec, resolved.workload.updates);
  const double entry = spec.hyperparameters().branch_learning_rate() *
                       rate_sum(spec.hyperparameters(), resolved.workload.updates);
  if (spec.dex().form() == DexMethod::FORM_UNIFORM_MAP) return reach * entry;
  if (spec.dex().w_d_init() == DexMethod::BRANCH_INIT_LINEAR) return 0.58 * reach;
  return reach * std::sqrt(static_cast<double>(projected_width(spec.dex(), model))) * entry;
}

std::vector<std::string> advice_at_creation(const Resolved& resolved, const dex::v1::Model& model) {
  std::vector<std::string> warnings;
  const auto& spec = resolved.config.spec();
  if (artifact_class(spec, model) == "MODEL") {
    warnings.push_back(
        "model_artifact: the result is a whole checkpoint; it can be downloaded and served as a "
        "base model of its own, but not loaded beside other adapters");
  }
  if (!spec.has_dex()) return warnings;
  const auto rate = resolved.config.sources().find("hyperparameters.learning_rate");
  const bool users_rate = rate != resolved.config.sources().end() && rate->second == "USER";
  // 1e-4 is the paper's rate of K, V and O; other trains have their own, or none.
  if (spec.dex().preset() == "paper" && spec.dex().train() == DexMethod::TRAIN_KVO_DEX &&
      !users_rate && resolved.workload.tokens_per_update < 500'000 &&
      size_class(model.parameters()) != SizeClass::kSmall) {
    warnings.push_back(
        "lr_small_batch: 1e-4 was tuned for 8 M tokens an update, this job has about " +
        std::to_string(resolved.workload.tokens_per_update) +
        "; try 5e-5 (medium) or 2e-5 (large)");
  }
  // The estimate is for an identity start, of a w_d or of UNIFORM_MAP's gates; a bottleneck's two
  // factors move together and reach further.
  if (goes_on(spec)) return warnings;  // its branch is where it is already
  const bool estimated = has_map(spec.dex()) || spec.dex().form() == DexMethod::FORM_UNIFORM_MAP;
  if (!estimated || spec.dex().start() == DexMethod::START_LITERAL) return warnings;
  if (const double reach = branch_reach(resolved, model); reach < 0.02) {
    warnings.push_back(
        "branch_out_of_reach: λ can reach " +
        round_to_2_digits(lambda_reach(spec, resolved.workload.updates)) + " in " +
        updates_text(resolved.workload) + ", the branch's share of O about " +
        round_to_2_digits(reach) +
        ": it will be weak or inert at the end; raise branch_learning_rate (1e-3)" +
        (spec.hyperparameters().has_lambda_learning_rate()
             ? " and lambda_learning_rate (1e-2), train longer, or use schedule COSINE"
             : " or train longer"));
  }
  return warnings;
}

}  // namespace dex::core
