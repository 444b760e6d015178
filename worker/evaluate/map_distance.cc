#include "worker/evaluate/map_distance.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "worker/evaluate/head_tables.h"

namespace dex::evaluate {

MapDistance::MapDistance(int64_t layers, int64_t heads)
    : open_(at::zeros({heads, heads}, at::kDouble)),
      sum_(at::zeros({layers, heads, heads}, at::kDouble)),
      documents_(static_cast<size_t>(layers), 0) {}

void MapDistance::add(const AttentionRows& rows) {
  if (rows.maps.size(1) == 0) return;
  const at::Tensor flat = rows.maps.to(at::kDouble).flatten(1);  // [H, b·w]
  open_.addmm_(flat, flat.t());
}

void MapDistance::close(int64_t layer) {
  const at::Tensor norms = open_.diagonal().sqrt();
  at::Tensor distance = 1 - open_ / at::outer(norms, norms);
  distance.fill_diagonal_(0);  // by definition, not only to rounding
  sum_[layer] += distance;
  ++documents_[static_cast<size_t>(layer)];
  open_.zero_();
}

MapDistance::Result MapDistance::result() const {
  Result out;
  for (size_t l = 0; l < documents_.size(); ++l) {
    if (documents_[l] == 0)
      throw std::runtime_error("[map_distance] layer " + std::to_string(l) + " has no map");
    out.pairs.push_back(
        table_of(sum_[static_cast<int64_t>(l)] / static_cast<double>(documents_[l])));
    out.mean.push_back(pair_mean(out.pairs.back()));
    out.documents = documents_[l];
  }
  return out;
}

}  // namespace dex::evaluate
