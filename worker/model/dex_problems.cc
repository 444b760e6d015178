#include <algorithm>
#include <cmath>
#include <set>
#include <string>

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
  const LambdaOptions& lambda = options.lambda;
  // A bottleneck starts with one factor zero, so D = 0; it has no w_d_init. A mean gate starts at 0
  // as well.
  const bool zero_difference =
      options.projection == Projection::kBottleneck || options.w_d_init == BranchInit::kZeros;
  switch (lambda.schedule) {
    case Schedule::kPaperEq4:
      if (zero_difference && lambda.learn_init == 0 && (lambda.anneal_steps <= 1 || updates <= 1)) {
        found.push_back(
            "branch can't start: give anneal_steps ≥ 2 (and at least 2 updates), "
            "lambda_learn_init ≠ 0 or w_d_init = linear");
      }
      break;
    case Schedule::kLearned:
      if (zero_difference && lambda.learn_init == 0) {
        found.push_back("branch can't start: give lambda_learn_init ≠ 0 or w_d_init = linear");
      }
      break;
    case Schedule::kConstant:
      if (lambda.value == 0) found.push_back("lambda is 0 for the whole job");
      break;
    case Schedule::kSeedCosine:
      if (lambda.start == 0 && lambda.end == 0) found.push_back("lambda is 0 for the whole job");
      break;
  }
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
  if (options.projection == Projection::kBottleneck) {
    const double most = 16;
    if (!(options.width_ratio > 0) || options.width_ratio > most) {
      found.push_back("width_ratio must be above 0 and at most 16, got " +
                      shown(options.width_ratio));
    } else if (options.width_ratio * static_cast<double>(config.head_dim) < 0.5) {
      found.push_back("width_ratio " + shown(options.width_ratio) + " of head_dim " +
                      std::to_string(config.head_dim) + " leaves no column");
    }
  }
}

}  // namespace

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
  find_bad_numbers(found, options, config);
  auto heads = head_problems(config, selected_heads);
  found.insert(found.end(), heads.begin(), heads.end());
  const bool none = std::all_of(selected_heads.begin(), selected_heads.end(),
                                [](const auto& heads_of_layer) { return heads_of_layer.empty(); });
  if (none && options.train == Train::kDexOnly)
    found.push_back("dex_only needs at least one selected head, got none");
  if (!none) find_dead_points(found, options, updates);
  return found;
}

}  // namespace dex::model
