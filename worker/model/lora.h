#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "worker/model/baselines.h"

namespace dex::model {

// The low-rank term of one linear (method.md §7): ΔW = scale·B·A. Undefined tensors: none.
struct LowRank {
  at::Tensor a;      // [r, in]
  at::Tensor b;      // [out, r]
  double scale = 0;  // α/r or α/√r
  [[nodiscard]] bool defined() const { return a.defined(); }
};

// The terms of a layer, by Linear. PEFT's rank_pattern may give each its own r.
class LoraTensors {
 public:
  LowRank& operator[](Linear linear) { return terms_[static_cast<size_t>(linear)]; }
  const LowRank& operator[](Linear linear) const { return terms_[static_cast<size_t>(linear)]; }

 private:
  std::array<LowRank, kLinears.size()> terms_;
};

// PEFT's key below "base_model.model.": "model.layers.3.self_attn.q_proj.lora_A.weight".
std::string lora_key(int64_t layer, Linear linear, char factor);

// The start: A U(−1/√in, 1/√in), B zeros, so ΔW = 0. Depends on (seed, layer, linear) only.
LoraTensors initial_lora(const LoraOptions& options, const Config& config, int64_t layer,
                         uint64_t seed);

// Numbers of one training pass: which entries dropout leaves out is a function of these and of the
// place in the model, so a repeated or resumed update leaves out the same.
struct Noise {
  uint64_t seed = 0;
  uint64_t pass = 0;  // unique within a job
};

// x with a share of `dropout` of its entries 0 and the others divided by 1 − dropout. `place`
// numbers the linear in the model. Without noise: x itself.
at::Tensor drop_out(const at::Tensor& x, double dropout, const std::optional<Noise>& noise,
                    uint64_t place);

// W + scale·B·A in fp32 (fp64 if W is), without gradient. Undefined term: W in that type.
at::Tensor merged(const at::Tensor& weight, const LowRank& term);

}  // namespace dex::model
