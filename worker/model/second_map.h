#pragma once

#include <cstdint>
#include <string>

#include "worker/model/config.h"
#include "worker/model/dex_options.h"
#include "worker/model/weights.h"

namespace dex::model {

// Method diff: a pretrained model in explicit differential form (method.md §8.4). Beside each query
// head stands a second one whose map is subtracted,
//   V2: O_h − mix·sigmoid(X·W_λᵀ)_h·O2_h, keys and values shared
//   V1: O_h − mix·λ·O2_h with λ of differential_attention.h, and a second key head too
// so that mix = 0 is the pretrained model. V1's norm and factor (1 − λ_init) stay off.
// A checkpoint of such a model is the base's, with q_proj (V1: and k_proj) of 2h heads, pairs 2i
// and 2i + 1, λ's tensors, and in config.json "differential_attention": {"version": "V2"}.

inline constexpr const char* kSecondMapKey = "differential_attention";
std::string_view name(SecondMapOptions::Version value);  // "V2"

// Why `config` can't get a second map of these options, with the way out; empty: it can.
std::string second_map_problem(const SecondMapOptions& options, const Config& config);

// The shape of the converted model.
Config with_second_map(Config config, SecondMapOptions::Version version);

// Its weights at the start, in the base's type; what has no second map is shared with `base`.
//   kZero    W_Q2 = 0 and its bias: the second map is uniform over the past; V1: W_K2 = W_K
//   kMirror  W_Q2 = W_Q, W_K2 = W_K: the second map is the first
// V2: W_λ = 0. V1: λ's vectors from N(0, 0.1²), functions of `seed` and the layer.
Weights add_second_map(const Weights& base, const Config& base_config,
                       const SecondMapOptions& options, uint64_t seed);

}  // namespace dex::model
