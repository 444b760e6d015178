#include "services/base/nearest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace dex::base {

namespace {

// Levenshtein's distance, one row at a time.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t exchanged = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({exchanged, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  constexpr size_t kLongest =
      64;  // longer words are no typing errors, and their table would be large
  if (word.size() > kLongest) return {};
  std::string_view best;
  size_t best_distance = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string_view candidate : candidates) {
    const size_t d = distance(word, candidate);
    if (d < best_distance) best_distance = d, best = candidate;
  }
  return best;
}

}  // namespace dex::base
