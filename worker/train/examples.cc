#include "worker/train/examples.h"

#include <algorithm>

namespace dex::train {

double trainable_weight(const Example& example) {
  double sum = 0;
  for (size_t i = 1; i < example.weights.size(); ++i) sum += example.weights[i];
  return sum;
}

int64_t trainable_tokens(const Example& example) {
  if (example.weights.empty()) return 0;
  return std::count_if(example.weights.begin() + 1, example.weights.end(),
                       [](float weight) { return weight > 0; });
}

int64_t total_tokens(const std::vector<Example>& examples) {
  int64_t tokens = 0;
  for (const Example& example : examples) tokens += static_cast<int64_t>(example.ids.size());
  return tokens;
}

}  // namespace dex::train
