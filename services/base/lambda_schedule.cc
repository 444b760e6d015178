#include "services/base/lambda_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace dex::base {

namespace {

bool learns(const LambdaOptions& options) {
  return options.schedule == Schedule::kPaperEq4 || options.schedule == Schedule::kLearned;
}

// Whether some update moves the branch. One layer speaks for all: λ_init by depth is above 0 in
// every layer, and nothing else depends on the layer. From T on λ stays as it is.
bool moves(const LambdaOptions& options, bool zero_difference, int64_t updates) {
  const int64_t visited =
      std::min(updates, std::max<int64_t>(options.anneal_steps, 0) + int64_t{1});
  for (int64_t u = 0; u < visited; ++u) {
    const LambdaTerms terms = lambda_terms(options, 0, u);
    if (terms.at(options.learn_init) != 0) return true;
    if (!zero_difference && terms.learned != 0) return true;
  }
  return false;
}

// "a", "a or b", "a, b or c".
std::string alternatives(const std::vector<std::string>& ways) {
  std::string text;
  for (size_t i = 0; i < ways.size(); ++i)
    text += (i == 0 ? "" : i + 1 == ways.size() ? " or " : ", ") + ways[i];
  return text;
}

std::string dead_learned(const LambdaOptions& options, const BranchStart& start, int64_t updates,
                         bool counted) {
  const bool paper = options.schedule == Schedule::kPaperEq4;
  const bool too_few = paper && updates <= 1 && options.anneal_steps > 0;  // only λ(0) is visited
  std::vector<std::string> ways;
  if (too_few) {
    ways = {"at least 2 updates"};
  } else {
    const bool bump = !options.init || *options.init != 0;
    if (paper && updates > 1 && bump) ways.emplace_back("anneal_steps ≥ 2");
    if (paper && options.anneal_steps > 1) ways.emplace_back("lambda_init ≠ 0");
    ways.emplace_back("lambda_learn_init ≠ 0");
    if (start.has_map) ways.emplace_back("w_d_init = linear");
  }
  const std::string visited = " (anneal_steps is " + std::to_string(options.anneal_steps) + " of " +
                              std::to_string(updates) + " updates)";
  return "branch can't start: give " + alternatives(ways) + (paper && counted ? visited : "");
}

std::string dead_fixed(const LambdaOptions& options, const BranchStart& start, int64_t updates) {
  const std::string dead = "lambda is 0 for the whole job: ";
  if (start.goes_on)
    return dead + "the adapter that it goes on from ended at λ 0; begin from the base model";
  if (options.schedule == Schedule::kConstant) return dead + "give value ≠ 0";
  if (options.anneal_steps <= 0) {
    const bool rests = options.start != 0;
    return dead + "give end ≠ 0" + (rests ? ", or anneal_steps ≥ 1 to begin at start" : "");
  }
  if (updates > 1) return dead + "give start or end ≠ 0";
  return dead + "give start ≠ 0" + (options.end != 0 ? ", or at least 2 updates" : "");
}

}  // namespace

double lambda_init(int64_t layer) {
  return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer));
}

LambdaTerms lambda_terms(const LambdaOptions& options, int64_t layer, int64_t t) {
  const double steps = static_cast<double>(options.anneal_steps);
  const double ratio = options.anneal_steps <= 0 ? 1.0 : static_cast<double>(t) / steps;
  const double alpha = std::min(1.0, ratio);
  switch (options.schedule) {
    case Schedule::kPaperEq4:  // method.md §2.2
      return {(1 - alpha) * ratio * options.init.value_or(lambda_init(layer)), alpha};
    case Schedule::kSeedCosine: {  // §3.3; the end is exact, whatever cos(π) rounds to
      if (alpha >= 1.0) return {options.end, 0};
      const double rise = 0.5 * (1 - std::cos(std::numbers::pi * alpha));
      return {options.start + (options.end - options.start) * rise, 0};
    }
    case Schedule::kConstant:
      return {options.value, 0};
    case Schedule::kLearned:
      return {0, 1};
  }
  return {};
}

double lambda_at(const LambdaOptions& options, int64_t layer, int64_t t, double lambda_learn) {
  return lambda_terms(options, layer, t).at(lambda_learn);
}

std::string dead_point(const LambdaOptions& options, const BranchStart& start,
                       std::optional<int64_t> updates) {
  const int64_t judged = updates.value_or(kManyUpdates);
  if (moves(options, start.zero_difference, judged)) return "";
  return learns(options) ? dead_learned(options, start, judged, updates.has_value())
                         : dead_fixed(options, start, judged);
}

}  // namespace dex::base
