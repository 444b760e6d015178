#include "worker/train/head_masks.h"

#include <algorithm>

namespace dex::train {

HeadMasks::HeadMasks(const std::vector<std::vector<int32_t>>& selected, int32_t heads, int64_t ramp,
                     double floor)
    : ramp_(ramp), floor_(floor) {
  for (const auto& set : selected) {
    std::vector<Head> layer(heads, Head{floor, floor, 0});
    for (const int32_t head : set) layer[head] = {1, 1, 0};
    table_.push_back(std::move(layer));
  }
}

double HeadMasks::weight(const Head& head, int64_t u) const {
  if (u - head.since >= ramp_ || head.from == head.to) return head.to;
  return head.from +
         (head.to - head.from) * static_cast<double>(u - head.since) / static_cast<double>(ramp_);
}

void HeadMasks::change(const std::vector<std::vector<int32_t>>& selected, int64_t u) {
  for (size_t l = 0; l < table_.size(); ++l) {
    for (size_t h = 0; h < table_[l].size(); ++h) {
      const bool chosen =
          std::binary_search(selected[l].begin(), selected[l].end(), static_cast<int32_t>(h));
      const double to = chosen ? 1.0 : floor_;
      if (table_[l][h].to != to) table_[l][h] = {weight(table_[l][h], u), to, u};
    }
  }
}

std::vector<float> HeadMasks::layer(int64_t l, int64_t u) const {
  std::vector<float> out;
  for (const Head& head : table_[l]) out.push_back(static_cast<float>(weight(head, u)));
  return out;
}

bool HeadMasks::settled(int64_t u) const {
  for (const auto& layer : table_) {
    for (const Head& head : layer) {
      if (weight(head, u) != head.to) return false;
    }
  }
  return true;
}

std::vector<std::vector<int32_t>> HeadMasks::selected() const {
  std::vector<std::vector<int32_t>> sets;
  for (const auto& layer : table_) {
    std::vector<int32_t> set;
    for (size_t h = 0; h < layer.size(); ++h) {
      if (layer[h].to == 1.0) set.push_back(static_cast<int32_t>(h));
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

bool reselects_at(int64_t u, int64_t every, int64_t updates) {
  if (every <= 0 || u == 0 || u % every != 0) return false;
  return u < updates - updates / 10 - updates / 20;
}

int64_t mask_ramp(int64_t updates) {
  return std::max<int64_t>(1, updates / 20);
}

}  // namespace dex::train
