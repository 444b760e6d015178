#include "services/data/split.h"

#include <algorithm>
#include <map>

namespace dex::data {

double split_position(uint64_t content_hash, uint64_t seed) {
  // SplitMix64's output function (Steele, Lea, Flood 2014) over both: every bit of the result hangs
  // on all.
  uint64_t z = content_hash + 0x9e3779b97f4a7c15ull * (seed + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

double auto_split_ratio(int64_t rows, bool has_validation_file) {
  if (has_validation_file || rows < 50) return 0;
  const double wanted = std::clamp(0.05 * static_cast<double>(rows), 10.0, 2000.0);
  return wanted / static_cast<double>(rows);
}

std::vector<bool> split_rows(std::span<const uint64_t> hashes, uint64_t seed, double ratio,
                             int64_t minimum_rows) {
  std::vector<bool> held_out(hashes.size(), false);
  if (ratio <= 0) return held_out;
  // Rows of one hash move together.
  std::map<std::pair<double, uint64_t>, std::vector<size_t>> by_position;
  int64_t count = 0;
  for (size_t i = 0; i < hashes.size(); ++i) {
    const double position = split_position(hashes[i], seed);
    by_position[{position, hashes[i]}].push_back(i);
    held_out[i] = position < ratio;
    count += held_out[i];
  }
  // Chance gave one side too few: the nearest rows cross over, as long as the other side keeps its
  // own share.
  const auto total = static_cast<int64_t>(hashes.size());
  const int64_t least = std::min(minimum_rows, total / 2);
  const auto move = [&](const std::vector<size_t>& same, bool to) {
    for (const size_t i : same) held_out[i] = to;
    count += to ? static_cast<int64_t>(same.size()) : -static_cast<int64_t>(same.size());
  };
  for (auto it = by_position.lower_bound({ratio, 0}); it != by_position.end() && count < least;
       ++it) {
    if (total - count - static_cast<int64_t>(it->second.size()) >= least) move(it->second, true);
  }
  for (auto it = by_position.lower_bound({ratio, 0});
       it != by_position.begin() && total - count < least;) {
    --it;
    if (count - static_cast<int64_t>(it->second.size()) >= least) move(it->second, false);
  }
  return held_out;
}

}  // namespace dex::data
