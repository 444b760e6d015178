#include "worker/evaluate/map_sparsity.h"

#include <ATen/ATen.h>

#include <stdexcept>

#include "worker/evaluate/head_tables.h"

namespace dex::evaluate {

MapSparsity::MapSparsity(int64_t layers, int64_t heads, double epsilon)
    : epsilon_(epsilon), entries_(at::zeros({layers}, at::kDouble)) {
  for (at::Tensor* sum : {&small_, &negative_, &negative_mass_, &mass_})
    *sum = at::zeros({layers, heads}, at::kDouble);
}

void MapSparsity::add(int64_t layer, const AttentionRows& rows) {
  const int64_t count = rows.maps.size(1), width = rows.maps.size(2);
  // Row r of the block has width − count + r + 1 entries; the zeros after them are no entries.
  const int64_t future = count * (count - 1) / 2;
  entries_[layer] += static_cast<double>(count * width - future);
  const at::Tensor size = rows.maps.abs();
  small_[layer] += size.lt(epsilon_).sum({1, 2}).to(at::kDouble) - static_cast<double>(future);
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
