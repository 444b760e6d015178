#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dex::train {

// The group of rows that carry no tag or language.
inline constexpr const char* kNoGroup = "(none)";

// One row of the data, or a piece of one: what the model reads and what it is taught.
struct Example {
  std::vector<int32_t> ids;
  std::vector<float> weights;  // weights[i] ≥ 0: how much predicting ids[i] counts; the first never
  uint64_t hash = 0;           // of the row's content: equal rows have equal ones
  std::string group = {};      // the row's tag or language where the job draws by them, else empty
};

// Σ weights over the positions that can be predicted (all but the first).
double trainable_weight(const Example& example);
int64_t trainable_tokens(const Example& example);  // number of positions with weight > 0

// Tokens of all examples.
int64_t total_tokens(const std::vector<Example>& examples);

}  // namespace dex::train
