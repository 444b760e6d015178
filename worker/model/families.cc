#include "worker/model/families.h"

#include <algorithm>

namespace dex::model {

namespace {

using enum Family::Has;
using enum Family::Window;

constexpr Family kFamilies[] = {
    // The Differential Transformer as transformers has it (differential_attention.h).
    {.model_type = "diffllama",
     .qkv_bias = kAsKeySays,
     .o_bias = kAsKeySays,
     .mlp_bias = kNo,
     .qk_norm = false,
     .head_dim = 0,
     .window = kNone,
     .attention = Attention::kDiffLlama},
    // Llama 2 and 3.x, SmolLM and SmolLM2, and the many that keep the name.
    {.model_type = "llama",
     .qkv_bias = kAsKeySays,
     .o_bias = kAsKeySays,
     .mlp_bias = kAsKeySays,
     .qk_norm = false,
     .head_dim = 0,
     .window = kNone},
    {.model_type = "mistral",
     .qkv_bias = kNo,
     .o_bias = kNo,
     .mlp_bias = kNo,
     .qk_norm = false,
     .head_dim = 0,
     .window = kEveryLayer},
    // Qwen2 and Qwen2.5.
    {.model_type = "qwen2",
     .qkv_bias = kYes,
     .o_bias = kNo,
     .mlp_bias = kNo,
     .qk_norm = false,
     .head_dim = 0,
     .window = kSwitched},
    {.model_type = "qwen3",
     .qkv_bias = kAsKeySays,
     .o_bias = kAsKeySays,
     .mlp_bias = kNo,
     .qk_norm = true,
     .head_dim = 128,
     .window = kSwitched},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family* find_family(std::string_view model_type) {
  const auto* found = std::ranges::find(kFamilies, model_type, &Family::model_type);
  return found == std::end(kFamilies) ? nullptr : found;
}

}  // namespace dex::model
