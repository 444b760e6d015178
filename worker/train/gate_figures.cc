#include "worker/train/gate_figures.h"

#include <cmath>
#include <limits>
#include <span>

namespace dex::train {

GateFigure mean_over_rows(std::vector<RowSum> rows, uint64_t seed) {
  std::erase_if(rows, [](const RowSum& row) { return row.weight <= 0; });
  GateFigure out;
  out.n = static_cast<int64_t>(rows.size());
  RowSum total;
  for (const RowSum& row : rows) {
    total.sum += row.sum;
    total.weight += row.weight;
  }
  out.value = rows.empty() ? std::numeric_limits<double>::quiet_NaN() : total.sum / total.weight;
  if (rows.size() < 2 || !std::isfinite(out.value)) return out;
  out.interval = evaluate::bootstrap(static_cast<uint32_t>(rows.size()), {.seed = seed},
                                     [&rows](std::span<const uint32_t> drawn) {
                                       RowSum sums;
                                       for (const uint32_t row : drawn) {
                                         sums.sum += rows[row].sum;
                                         sums.weight += rows[row].weight;
                                       }
                                       return sums.sum / sums.weight;
                                     });
  return out;
}

}  // namespace dex::train
