#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/model/adaptation.h"

namespace dex::evaluate {

// What a folding branch takes away from a head's output: eigenvalues of the symmetric part of
// I + s·λ·w_d (method.md §4.5; the token map of `paper` and `head_mean` has no negative entry).
struct RemovedDirections {
  int64_t below_zero = 0;  // directions that are turned round
  int64_t below_half = 0;  // that lose more than half, those turned round among them
};
// `w_d` [d, d], `strength` = s·λ·m.
RemovedDirections removed_directions(const at::Tensor& w_d, double strength);

struct RemovedTable {
  // A dense map goes from all heads to each: there is one number a layer, of the H·d dimensions of
  // concat(O), and none of single heads.
  bool by_layer = false;
  // [L][H]; by_layer: [L][1]. Nothing: no branch acts there.
  std::vector<std::vector<std::optional<RemovedDirections>>> layers;
};
// Of every layer of an adaptation of form `paper` or `head_mean` (of the latter P alone, without
// the mean over heads). Nothing where there are no such directions: another form, or a bottleneck
// with an activation, which is no matrix.
std::optional<RemovedTable> removed_by(const model::Adaptation& adaptation, int64_t heads);

}  // namespace dex::evaluate
