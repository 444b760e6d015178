#pragma once

#include <cstdint>

#include "dex/v1/finetuning.pb.h"
#include "dex/v1/models.pb.h"

// What a resolved dex method is made of (method.md §3.1, §3.2).
namespace dex::core {

// Whether the projection P exists: uniform_map has none.
inline bool has_projection(const dex::v1::DexMethod& dex) {
  return dex.form() != dex::v1::DexMethod::FORM_UNIFORM_MAP;
}
inline bool has_bottleneck(const dex::v1::DexMethod& dex) {
  return has_projection(dex) && dex.projection() == dex::v1::DexMethod::PROJECTION_BOTTLENECK;
}
// Whether the branch has a w_d, rather than a bottleneck's two factors or no projection.
inline bool has_map(const dex::v1::DexMethod& dex) {
  return has_projection(dex) && !has_bottleneck(dex);
}

// The width that the projection multiplies: d, or H·d for DENSE and a bottleneck of that scope.
int64_t projected_width(const dex::v1::DexMethod& dex, const dex::v1::Model& model);

// Parameters of the branch over all layers: maps, gates, λ_learn.
int64_t branch_parameters(const dex::v1::DexMethod& dex, const dex::v1::Model& model);

}  // namespace dex::core
