#pragma once

#include <cstdint>
#include <vector>

namespace dex::train {

// One row of the data, or a piece of one: what the model reads and what it is taught.
struct Example {
  std::vector<int32_t> ids;
  std::vector<float>
      weights;        // weights[i] ≥ 0: how much predicting ids[i] counts; the first never counts
  int64_t line = 0;   // of the data file, 1-based
  uint64_t hash = 0;  // of the row's content (text::content_hash): equal rows have equal ones
};

// Σ weights over the positions that can be predicted (all but the first).
double trainable_weight(const Example& example);
int64_t trainable_tokens(const Example& example);  // number of positions with weight > 0

// The p99.5 of row lengths within [16, limit], for max_seq_length = auto (api.md §3).
int32_t auto_sequence_length(const std::vector<Example>& rows, int32_t limit);

struct Split {
  std::vector<Example> train, validation;
};

// Rows held out for validation: `auto` = none below 50 rows, else min(5 %, 2000 rows) but at least
// 10; a ratio in [0, 0.5] otherwise (ratio < 0 means auto). Decided by the content's hash and the
// seed, so equal rows land on one side and added rows move few; equal rows may make the count
// larger than asked for.
Split split_rows(std::vector<Example> rows, double ratio, uint64_t seed);

}  // namespace dex::train
