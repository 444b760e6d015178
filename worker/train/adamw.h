#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "worker/train/flat_parameters.h"

namespace dex::train {

// AdamW over the flat buffers (method.md §2.3): one learning rate a group, moments in fp32, decay
// (decoupled) on the base's weights, LoRA and adapters, never on w_d, gates, λ. Bias correction by
// the number of updates applied. Not thread-safe.
class AdamW {
 public:
  struct Options {
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  };
  using Rates = std::array<double, model::kGroups>;  // by model::Group

  AdamW(FlatParameters& parameters, const Options& options);  // parameters outlive this object

  void update(const Rates& rates);

  // The state that a checkpoint keeps: two moments of the buffers' layout, and the number of
  // updates applied.
  const at::Tensor& first_moment() const { return first_; }
  const at::Tensor& second_moment() const { return second_; }
  int64_t updates() const { return updates_; }
  void restore(const at::Tensor& first, const at::Tensor& second, int64_t updates);

 private:
  FlatParameters& parameters_;
  Options options_;
  at::Tensor first_, second_;
  int64_t updates_ = 0;
};

}  // namespace dex::train
