#include "worker/train/examples.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/kernels/philox.h"
#include "worker/train/philox.h"

namespace dex::train {
namespace {

constexpr int64_t kAutoSplitMinRows = 50, kAutoSplitMaxHeld = 2000, kAutoSplitMinHeld = 10;

int64_t held_out_target(int64_t rows, double ratio) {
  if (ratio >= 0) return static_cast<int64_t>(std::floor(ratio * static_cast<double>(rows)));
  if (rows < kAutoSplitMinRows) return 0;
  return std::max(kAutoSplitMinHeld, std::min(kAutoSplitMaxHeld, rows / 20));
}

// The hash again, keyed by the seed: another seed holds other rows out.
uint64_t keyed(uint64_t hash, uint64_t seed) {
  const auto words =
      kernels::philox({static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32), 0, 0},
                      {static_cast<uint32_t>(seed),
                       static_cast<uint32_t>(seed >> 32) ^ static_cast<uint32_t>(Site::kSplit)});
  return (static_cast<uint64_t>(words[0]) << 32) | words[1];
}

}  // namespace

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

int32_t auto_sequence_length(const std::vector<Example>& rows, int32_t limit) {
  std::vector<size_t> lengths;
  for (const Example& row : rows) lengths.push_back(row.ids.size());
  if (lengths.empty()) return std::min<int32_t>(limit, 16);
  std::sort(lengths.begin(), lengths.end());
  const auto rank = static_cast<size_t>(std::ceil(0.995 * static_cast<double>(lengths.size()))) - 1;
  return std::clamp<int32_t>(static_cast<int32_t>(std::min<size_t>(lengths[rank], limit)),
                             std::min<int32_t>(16, limit), limit);
}

Split split_rows(std::vector<Example> rows, double ratio, uint64_t seed) {
  const int64_t target = held_out_target(static_cast<int64_t>(rows.size()), ratio);
  Split split;
  if (target == 0) {
    split.train = std::move(rows);
    return split;
  }
  std::vector<uint64_t> keys;
  for (const Example& row : rows) keys.push_back(keyed(row.hash, seed));
  std::vector<uint64_t> sorted = keys;
  std::nth_element(sorted.begin(), sorted.begin() + (target - 1), sorted.end());
  const uint64_t limit = sorted[target - 1];
  for (size_t i = 0; i < rows.size(); ++i) {
    (keys[i] <= limit ? split.validation : split.train).push_back(std::move(rows[i]));
  }
  return split;
}

}  // namespace dex::train
