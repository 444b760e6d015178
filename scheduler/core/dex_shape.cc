#include "scheduler/core/dex_shape.h"

#include <algorithm>
#include <cmath>

namespace dex::core {

namespace {

using dex::v1::DexMethod;
using dex::v1::Lambda;

int64_t projection_parameters(const DexMethod& dex, const dex::v1::Model& model) {
  const int64_t width = projected_width(dex, model), heads = model.query_heads();
  if (!has_projection(dex)) return 0;
  if (has_map(dex)) {
    const bool per_head = dex.projection() == DexMethod::PROJECTION_PER_HEAD;
    return (per_head ? heads : 1) * width * width;
  }
  const bool per_head = dex.bottleneck().scope() == DexMethod::Bottleneck::SCOPE_PER_HEAD;
  const auto inner = std::max<int64_t>(
      1, std::llround(dex.bottleneck().width_ratio() * static_cast<double>(width)));
  return (per_head ? heads : 1) * 2 * width * inner;
}

}  // namespace

int64_t projected_width(const DexMethod& dex, const dex::v1::Model& model) {
  const bool dense =
      dex.projection() == DexMethod::PROJECTION_DENSE ||
      (has_bottleneck(dex) && dex.bottleneck().scope() == DexMethod::Bottleneck::SCOPE_DENSE);
  return dense ? int64_t{model.query_heads()} * model.head_dim() : model.head_dim();
}

int64_t branch_parameters(const DexMethod& dex, const dex::v1::Model& model) {
  const int64_t gates = dex.form() == DexMethod::FORM_PAPER ? 0 : model.query_heads();
  const auto schedule = dex.lambda().schedule();
  const bool learned =
      schedule == Lambda::SCHEDULE_PAPER_EQ4 || schedule == Lambda::SCHEDULE_LEARNED;
  return model.layers() * (projection_parameters(dex, model) + gates + (learned ? 1 : 0));
}

}  // namespace dex::core
