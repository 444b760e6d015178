#include "worker/evaluate/map_sparsity.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "worker/evaluate/head_tables.h"

namespace dex::evaluate {

MapSparsity::MapSparsity(int64_t layers, int64_t heads, double epsilon)
    : epsilon_(epsilon), entries_(at::zeros({layers}, at::kDouble)) {
  for (at::Tensor* sum : {&small_, &negative_, &negative_mass_, &mass_})
    *sum = at::zeros({layers, heads}, at::kDouble);
}

void MapSparsity::add(int64_t layer, const AttentionRows& rows) {
  // Row i has as many entries as it sees rows; the zeros beside them are none.
  int64_t entries = 0;
  for (int64_t i = rows.first; i < rows.first + rows.maps.size(1); ++i)
    entries += rows.window > 0 ? std::min(rows.window, i + 1) : i + 1;
  const int64_t beside = rows.maps.size(1) * rows.maps.size(2) - entries;
  entries_[layer] += static_cast<double>(entries);
  const at::Tensor size = rows.maps.abs();
  small_[layer] += size.lt(epsilon_).sum({1, 2}).to(at::kDouble) - static_cast<double>(beside);
  negative_[layer] += rows.maps.lt(0).sum({1, 2}).to(at::kDouble);
  negative_mass_[layer] -= rows.maps.clamp_max(0).sum({1, 2}, false, at::kDouble);
  mass_[layer] += size.sum({1, 2}, false, at::kDouble);
}

MapSparsity::Result MapSparsity::result() const {
  if (entries_.eq(0).any().item<bool>())
    throw std::runtime_error("[map_sparsity] a layer has seen no row");
  const at::Tensor entries = entries_.unsqueeze(1);
  return {epsilon_, table_of(small_ / entries), table_of(negative_ / entries),
          table_of(negative_mass_ / mass_)};
}

RemovedDirections removed_directions(const at::Tensor& w_d, double strength) {
  const at::Tensor w = w_d.detach().to(at::kDouble);
  const at::Tensor map =
      at::eye(w.size(0), at::kDouble) + (w + w.t()) * (strength / 2);  // symmetric part
  const at::Tensor values = at::linalg_eigvalsh(map);
  return {values.lt(0).sum().item<int64_t>(), values.lt(0.5).sum().item<int64_t>()};
}

}  // namespace dex::evaluate
