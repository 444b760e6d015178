#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/model/config.h"

namespace dex::model {

// The options of the baselines of method.md §7, as plain values.

// The linears of a decoder layer that LoRA may change, in the order of a checkpoint.
enum class Linear { kQ, kK, kV, kO, kGate, kUp, kDown };
inline constexpr std::array kLinears{Linear::kQ,    Linear::kK,  Linear::kV,   Linear::kO,
                                     Linear::kGate, Linear::kUp, Linear::kDown};

std::string_view name(Linear value);  // "q_proj"
std::string_view path(Linear value);  // "self_attn.q_proj", below "model.layers.{i}."
// Throws "[baselines] target module …" with the value and the names that exist.
Linear parse_linear(std::string_view text);

struct LinearShape {
  int64_t out = 0, in = 0;  // of the weight [out, in]
};
LinearShape shape_of(Linear value, const Config& config);

// y = x·Wᵀ + s·drop(x)·Aᵀ·Bᵀ with A [r, in], B [out, r], s = α/r, or α/√r with `rslora`.
struct LoraOptions {
  int64_t r = 8;
  double alpha = 16;
  double dropout = 0;  // share of x's entries that a training pass leaves out; never elsewhere
  std::vector<Linear> targets{Linear::kQ, Linear::kK, Linear::kV, Linear::kO};
  bool rslora = false;
};
double lora_scale(double alpha, int64_t r, bool rslora);

enum class AdapterActivation { kRelu, kGelu };  // gelu: x·Φ(x) by erf
enum class Placement { kBoth, kAttention, kMlp };

// h ← h + up(act(down(h))) on the output of o_proj, of down_proj, or of both.
struct BottleneckAdapterOptions {
  int64_t size = 64;
  Placement placement = Placement::kBoth;
  AdapterActivation activation = AdapterActivation::kRelu;
  [[nodiscard]] bool after_attention() const { return placement != Placement::kMlp; }
  [[nodiscard]] bool after_mlp() const { return placement != Placement::kAttention; }
};

// "relu", "both"; the readers throw "[options] activation …" as above.
std::string_view name(AdapterActivation value);
std::string_view name(Placement value);
AdapterActivation parse_adapter_activation(std::string_view text);
Placement parse_placement(std::string_view text);

// Everything that is wrong with the options on this model, field and value; empty: they can be
// trained.
std::vector<std::string> problems(const LoraOptions& options);
std::vector<std::string> problems(const BottleneckAdapterOptions& options);

inline constexpr int64_t kMostRank = 256;   // of what is trained here
inline constexpr int64_t kMostSize = 4096;  // of a bottleneck adapter

}  // namespace dex::model
