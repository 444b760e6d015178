#pragma once

#include <array>
#include <string_view>

// What method.md fixes and both halves of the platform must know: the scheduler checks a job by it
// before it is queued, trainer and engine before they compute. Neither may include the other's
// headers (protobuf here, LibTorch there), so it stands in the room that both use.
namespace dex::base {

// Share of the base's parameters above which a branch needs allow_large_projection (§3.6).
inline constexpr double kLargeBranch = 0.1;

// The linears of a decoder layer that LoRA may change (§7), below "model.layers.{i}.", in the order
// of a checkpoint. Their names are what follows the dot.
inline constexpr std::array<std::string_view, 7> kLinearPaths = {
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
constexpr std::string_view linear_name(std::string_view path) {
  return path.substr(path.find('.') + 1);
}

}  // namespace dex::base
