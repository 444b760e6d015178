#include "worker/evaluate/map_sparsity.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "worker/evaluate/head_tables.h"

namespace dex::evaluate {

MapSparsity::MapSparsity(int64_t layers, int64_t heads, double epsilon) : epsilon_(epsilon) {
  for (at::Tensor* sum : {&entries_, &small_, &negative_, &negative_mass_, &mass_})
    *sum = at::zeros({layers, heads}, at::kDouble);
}

void MapSparsity::add(int64_t layer, const AttentionRows& rows) {
  // Row i has as many entries as it sees rows; the zeros beside them are none.
  double inside = 0, all = 0;
  for (int64_t i = rows.first; i < rows.first + rows.maps.size(1); ++i) {
    all += static_cast<double>(i + 1);
    inside += static_cast<double>(rows.window > 0 ? std::min(rows.window, i + 1) : i + 1);
  }
  at::Tensor entries = at::full({rows.maps.size(0)}, inside, at::kDouble);
  if (rows.beyond_window.defined()) entries.masked_fill_(rows.beyond_window, all);
  const auto shown = static_cast<double>(rows.maps.size(1) * rows.maps.size(2));
  entries_[layer] += entries;
  const at::Tensor size = rows.maps.abs();
  // `shown − entries` zeros of each head are beside its map.
  small_[layer] += size.lt(epsilon_).sum({1, 2}).to(at::kDouble) + entries - shown;
  negative_[layer] += rows.maps.lt(0).sum({1, 2}).to(at::kDouble);
  negative_mass_[layer] -= rows.maps.clamp_max(0).sum({1, 2}, false, at::kDouble);
  mass_[layer] += size.sum({1, 2}, false, at::kDouble);
}

MapSparsity::Result MapSparsity::result() const {
  if (entries_.eq(0).any().item<bool>())
    throw std::runtime_error("[map_sparsity] a layer has seen no row");
  return {epsilon_, table_of(small_ / entries_), table_of(negative_ / entries_),
          table_of(negative_mass_ / mass_)};
}

}  // namespace dex::evaluate
