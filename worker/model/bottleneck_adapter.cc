#include "worker/model/bottleneck_adapter.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "worker/model/random_start.h"

namespace dex::model {

std::vector<std::pair<std::string, at::Tensor*>> adapter_places(BottleneckAdapter& adapter) {
  return {{"down.weight", &adapter.down_weight},
          {"down.bias", &adapter.down_bias},
          {"up.weight", &adapter.up_weight},
          {"up.bias", &adapter.up_bias}};
}

std::vector<std::vector<int64_t>> adapter_shapes(const BottleneckAdapterOptions& options,
                                                 const Config& config) {
  const int64_t D = config.hidden_size, m = options.size;
  return {{m, D}, {m}, {D, m}, {D}};
}

BottleneckAdapter initial_adapter(const BottleneckAdapterOptions& options, const Config& config,
                                  int64_t layer, int place, uint64_t seed) {
  BottleneckAdapter adapter;
  const auto shapes = adapter_shapes(options, config);
  const auto places = adapter_places(adapter);
  for (size_t i = 0; i < places.size(); ++i) *places[i].second = at::zeros(shapes[i], at::kFloat);
  const double bound = 1 / std::sqrt(static_cast<double>(config.hidden_size));
  const uint64_t stream = kBottleneckStreams + 2 * static_cast<uint64_t>(layer) + place;
  adapter.down_weight = random_start(shapes[0], bound, seed, stream);
  return adapter;
}

at::Tensor apply_adapter(const at::Tensor& h, const BottleneckAdapter& adapter,
                         AdapterActivation activation) {
  if (!adapter.defined()) return h;
  const at::Tensor inner = at::addmm(adapter.down_bias, h, adapter.down_weight.t());
  const at::Tensor active =
      activation == AdapterActivation::kRelu ? at::relu(inner) : at::gelu(inner);
  return at::addmm(adapter.up_bias, active, adapter.up_weight.t()).add_(h);
}

}  // namespace dex::model
