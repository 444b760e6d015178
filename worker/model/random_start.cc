#include "worker/model/random_start.h"

#include <ATen/ops/empty.h>

#include "worker/kernels/philox.h"

namespace dex::model {

at::Tensor random_start(at::IntArrayRef shape, double bound, uint64_t seed, uint64_t stream) {
  at::Tensor values = at::empty(shape, at::kFloat);
  auto* data = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    data[i] = static_cast<float>(
        bound * (2 * kernels::random_unit(seed, stream, static_cast<uint64_t>(i)) - 1));
  }
  return values;
}

}  // namespace dex::model
