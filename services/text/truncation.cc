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

}  // namespace

std::vector<WeightedIds> cut(WeightedIds row, int32_t max_ids, Truncation how, bool keep_first) {
  const size_t size = row.ids.size(), limit = static_cast<size_t>(max_ids);
  std::vector<WeightedIds> parts;
  if (size <= limit) {
    parts.push_back(std::move(row));
    return parts;
  }
  switch (how) {
    case Truncation::kLeft: {
      WeightedIds part = piece(row, size - limit, size);
      if (keep_first) part.ids.front() = row.ids.front();
      parts.push_back(std::move(part));
      break;
    }
    case Truncation::kChunk:
      for (size_t begin = 0; begin + 1 < size; begin += limit - 1) {
        parts.push_back(piece(row, begin, std::min(begin + limit, size)));
      }
      break;
    default:
      parts.push_back(piece(row, 0, limit));
  }
  return parts;
}

}  // namespace dex::text
