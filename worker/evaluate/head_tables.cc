#include "worker/evaluate/head_tables.h"

#include <ATen/ATen.h>

namespace dex::evaluate {

HeadTable table_of(const at::Tensor& values) {
  HeadTable out;
  for (int64_t i = 0; i < values.size(0); ++i) {
    const at::Tensor row = values[i].contiguous();
    const double* begin = row.const_data_ptr<double>();
    out.emplace_back(begin, begin + row.size(0));
  }
  return out;
}

double pair_mean(const HeadTable& table) {
  double sum = 0;
  size_t pairs = 0;
  for (size_t h = 0; h < table.size(); ++h) {
    for (size_t g = h + 1; g < table.size(); ++g, ++pairs) sum += table[h][g];
  }
  return pairs > 0 ? sum / static_cast<double>(pairs) : 0.0;
}

}  // namespace dex::evaluate
