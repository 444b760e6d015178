#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/model/baselines.h"

namespace dex::model {

// A bottleneck adapter (method.md §7): h ← h + up(act(down(h))). Undefined tensors: none. Not to be
// confused with the projection `bottleneck` of a DEX branch.
struct BottleneckAdapter {
  at::Tensor down_weight, down_bias;  // [size, D] [size]
  at::Tensor up_weight, up_bias;      // [D, size] [D]
  [[nodiscard]] bool defined() const { return down_weight.defined(); }
};

// The tensors by their keys below "{self_attn,mlp}.adapter.", in the order of the artefact.
std::vector<std::pair<std::string, at::Tensor*>> adapter_places(BottleneckAdapter& adapter);
// What they must look like, in the same order.
std::vector<std::vector<int64_t>> adapter_shapes(const BottleneckAdapterOptions& options,
                                                 const Config& config);

// The start: down U(−1/√D, 1/√D), everything else 0, which is the identity. Depends on (seed,
// layer, place) only; `place` is 0 after attention, 1 after the MLP.
BottleneckAdapter initial_adapter(const BottleneckAdapterOptions& options, const Config& config,
                                  int64_t layer, int place, uint64_t seed);

// h + up(act(down(h))) of h [N, D], a fresh tensor; differentiable in all. Undefined adapter: h
// itself.
at::Tensor apply_adapter(const at::Tensor& h, const BottleneckAdapter& adapter,
                         AdapterActivation activation);

}  // namespace dex::model
