#include "services/text/truncation.h"

#include <algorithm>

namespace dex::text {

namespace {

WeightedIds piece(const WeightedIds& row, size_t begin, size_t end) {
  WeightedIds part;
  part.ids.assign(row.ids.begin() + begin, row.ids.begin() + end);
  part.weights.assign(row.weights.begin() + begin, row.weights.begin() + end);
  if (!part.weights.empty()) part.weights.front() = 0;  // nothing before it to predict it from
  return part;
}

// Where kRight's window begins. A long prompt before a short answer loses its beginning, an answer
// longer than the window its end; a row whose targets begin in the first half of the window is cut
// at the end alone.
size_t window_begin(const std::vector<float>& weights, size_t limit) {
  const auto is_target = [](float weight) { return weight > 0; };
  const auto first = std::find_if(weights.begin(), weights.end(), is_target);
  const auto last = std::find_if(weights.rbegin(), weights.rend(), is_target);
  const auto before = static_cast<size_t>(first - weights.begin());
  const auto end = static_cast<size_t>(weights.rend() - last);
  if (first == weights.end() || end <= limit || before <= limit / 2) return 0;
  return std::min(end - limit, before - limit / 2);
}

}  // namespace

std::vector<WeightedIds> cut(WeightedIds row, int32_t max_ids, Truncation how, bool keep_first) {
  const size_t size = row.ids.size(), limit = static_cast<size_t>(max_ids);
  std::vector<WeightedIds> parts;
  if (size <= limit) {
    parts.push_back(std::move(row));
    return parts;
  }
  switch (how) {
    case Truncation::kChunk:
      for (size_t begin = 0; begin + 1 < size; begin += limit - 1) {
        parts.push_back(piece(row, begin, std::min(begin + limit, size)));
      }
      break;
    default: {
      const size_t begin =
          how == Truncation::kLeft ? size - limit : window_begin(row.weights, limit);
      WeightedIds part = piece(row, begin, begin + limit);
      if (keep_first) part.ids.front() = row.ids.front();
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

}  // namespace dex::text
