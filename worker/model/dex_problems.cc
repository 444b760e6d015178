#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "services/base/lambda_schedule.h"
#include "services/base/method_constants.h"
#include "worker/model/dex_options.h"

namespace dex::model {

namespace {

std::string shown(double value) {
  std::string text = std::to_string(value);
  while (text.size() > 1 && text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

void require_finite(std::vector<std::string>& found, const char* what, double value) {
  if (!std::isfinite(value))
    found.push_back(std::string(what) + " must be finite, got " + std::to_string(value));
}

// Dead points of method.md §2.5: every gradient of the branch is multiplied by a zero that never
// goes away.
void find_dead_points(std::vector<std::string>& found, const DexOptions& options, int64_t updates) {
  // D = 0 at the start: of w_d only `linear` is not zero; a bottleneck has one factor zero and no
  // w_d_init, gates start at 0.
  const base::BranchStart start = {
      .zero_difference = options.start == Start::kIdentity &&
                         (!options.has_map() || options.w_d_init == BranchInit::kZeros),
      .has_map = options.has_map()};
  const std::string dead = base::dead_point(options.lambda, start, updates);
  if (!dead.empty()) found.push_back(dead);
}

// method.md §3.5: `identity` starts at the base's logits, by λ(0) = 0 or by D = 0; `literal` does
// not.
void find_wrong_start(std::vector<std::string>& found, const DexOptions& options) {
  const LambdaTerms first = lambda_terms(options.lambda, 0, 0);
  const bool acts = first.at(options.lambda.learn_init) != 0;
  if (options.start == Start::kLiteral && !acts) {
    found.push_back(
        "start literal needs λ ≠ 0 at the first update, and this schedule begins at 0: give "
        "another schedule or start identity");
  }
  if (options.start == Start::kIdentity && acts && options.has_map() &&
      options.w_d_init == BranchInit::kLinear) {
    found.push_back(
        "w_d_init linear with λ ≠ 0 at the first update would change the model before it: give "
        "w_d_init zeros, λ 0 at the start, or start literal");
  }
}

// What method.md §3.6 allows only on request.
void find_large_branch(std::vector<std::string>& found, const DexOptions& options,
                       const Config& config) {
  int64_t parameters = 0;
  for (const auto& [key, shape] : branch_shapes(options, config)) {
    int64_t size = config.layers - options.first_layer;
    for (const int64_t extent : shape) size *= extent;
    parameters += size;
  }
  const double share =
      static_cast<double>(parameters) / static_cast<double>(config.parameter_count());
  if (share <= base::kLargeBranch || options.allow_large_projection) return;
  found.push_back(
      "a branch of " + std::to_string(parameters) + " parameters is " +
      shown(std::round(1000 * share) / 10) +
      " % of the base; above 10 % it needs allow_large_projection, or projection shared or "
      "per_head, or a bottleneck of lower width_ratio");
}

void find_bad_numbers(std::vector<std::string>& found, const DexOptions& options,
                      const Config& config) {
  const LambdaOptions& lambda = options.lambda;
  if (lambda.anneal_steps < 0) {
    found.push_back("anneal_steps must be ≥ 0, got " + std::to_string(lambda.anneal_steps));
  }
  require_finite(found, "lambda init", lambda.init.value_or(0));
  require_finite(found, "lambda learn_init", lambda.learn_init);
  require_finite(found, "lambda start", lambda.start);
  require_finite(found, "lambda end", lambda.end);
  require_finite(found, "lambda value", lambda.value);
  if (!(options.soft_floor >= 0 && options.soft_floor <= 0.5)) {
    found.push_back("soft_floor must be between 0 and 0.5, got " + shown(options.soft_floor));
  }
  if (options.has_projection() && options.projection == Projection::kBottleneck) {
    const double most = 16;
    const int64_t width = projected_width(options, config);
    if (!(options.width_ratio > 0) || options.width_ratio > most) {
      found.push_back("width_ratio must be above 0 and at most 16, got " +
                      shown(options.width_ratio));
    } else if (options.width_ratio * static_cast<double>(width) < 0.5) {
      found.push_back("width_ratio " + shown(options.width_ratio) +
                      (width == config.head_dim ? " of head_dim " : " of H·d ") +
                      std::to_string(width) + " leaves no column");
    }
  }
}

}  // namespace

std::string branch_refusal(const Config& config) {
  if (!config.differential()) return "";
  return "model_type " + config.kind() +
         " subtracts attention maps by itself, and DEX has no defined meaning on it: train it with "
         "kvo_only, lora, adapter or full";
}

std::string first_layer_problem(const DexOptions& options, const Config& config) {
  const int64_t first = options.first_layer;
  if (first < 0 || first >= config.layers) {
    return "first_layer must be between 0 and " + std::to_string(config.layers - 1) +
           ", the model's last layer, got " + std::to_string(first);
  }
  if (first == 0 || !options.publishes_model()) return "";
  return "first_layer " + std::to_string(first) + " has no meaning with train " +
         std::string(name(options.train)) + ", which publishes a whole model: leave it out";
}

std::vector<std::string> head_problems(const Config& config,
                                       const std::vector<std::vector<int64_t>>& selected_heads) {
  std::vector<std::string> found;
  if (static_cast<int64_t>(selected_heads.size()) != config.layers) {
    found.push_back("selected_heads must list " + std::to_string(config.layers) + " layers, got " +
                    std::to_string(selected_heads.size()));
    return found;
  }
  for (size_t layer = 0; layer < selected_heads.size(); ++layer) {
    std::set<int64_t> seen;
    for (const int64_t head : selected_heads[layer]) {
      const std::string where = "layer " + std::to_string(layer) + ": head " + std::to_string(head);
      if (head < 0 || head >= config.heads)
        found.push_back(where + " of " + std::to_string(config.heads));
      if (!seen.insert(head).second) found.push_back(where + " twice");
    }
  }
  return found;
}

std::vector<std::string> problems(const DexOptions& options, const Config& config,
                                  const std::vector<std::vector<int64_t>>& selected_heads,
                                  int64_t updates) {
  std::vector<std::string> found;
  if (updates < 1) found.push_back("updates must be ≥ 1, got " + std::to_string(updates));
  const auto add = [&](const char* block, const std::vector<std::string>& more) {
    for (const std::string& problem : more) found.push_back(std::string(block) + "." + problem);
  };
  if (auto wrong = first_layer_problem(options, config); !wrong.empty()) {
    found.push_back(std::move(wrong));
    return found;  // nothing below can be counted
  }
  if (options.has_lora()) add("lora", problems(options.lora));
  if (options.has_adapter()) add("adapter", problems(options.adapter));
  if (!parts_of(options.train).branch) {
    if (options.has_branch()) {
      found.push_back("train " + std::string(name(options.train)) +
                      " has no branch: form must be none");
    }
    return found;
  }
  if (!options.has_branch()) {
    found.push_back("train " + std::string(name(options.train)) + " needs a form, got none");
    return found;
  }
  if (auto refusal = branch_refusal(config); !refusal.empty()) found.push_back(std::move(refusal));
  find_bad_numbers(found, options, config);
  auto heads = head_problems(config, selected_heads);
  found.insert(found.end(), heads.begin(), heads.end());
  for (size_t layer = 0; layer < selected_heads.size(); ++layer) {
    if (static_cast<int64_t>(layer) >= options.first_layer || selected_heads[layer].empty())
      continue;
    found.push_back("layer " + std::to_string(layer) + ": heads are selected below first_layer " +
                    std::to_string(options.first_layer));
  }
  find_large_branch(found, options, config);
  // With a floor the branch acts on every head, chosen or not.
  const bool none = options.soft_floor == 0 &&
                    std::all_of(selected_heads.begin(), selected_heads.end(),
                                [](const auto& heads_of_layer) { return heads_of_layer.empty(); });
  if (none && options.train == Train::kDexOnly)
    found.push_back(
        "dex_only needs at least one selected head, got none: give heads, or a soft_floor above 0");
  if (!none) {
    find_dead_points(found, options, updates);
    find_wrong_start(found, options);
  }
  return found;
}

}  // namespace dex::model
