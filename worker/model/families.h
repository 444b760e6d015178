#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "worker/model/config.h"

namespace dex::model {

// A family of base models: what `model_type` of config.json decides by itself, as transformers'
// class of that name does. Everything else is a number of the config (config.h). This table is the
// one list of what can be loaded, trained and served; code below it asks the Config.
struct Family {
  enum class Has { kNo, kYes, kAsKeySays };  // the key missing: no
  enum class Window {
    kNone,        // `sliding_window` must be missing or null
    kEveryLayer,  // `sliding_window`: null, or tokens
    kSwitched,  // the same behind `use_sliding_window` and by `layer_types` or `max_window_layers`
  };

  std::string_view model_type;
  Has qkv_bias, o_bias;  // key attention_bias
  Has mlp_bias;          // key mlp_bias
  bool qk_norm;          // RMSNorm over each query and key head, before RoPE
  int64_t head_dim;      // of a config without the key; 0: hidden_size / num_attention_heads
  Window window;
  Attention attention = Attention::kSoftmax;
};

// In alphabetical order.
std::span<const Family> families();

// Null: not one of them.
const Family* find_family(std::string_view model_type);

}  // namespace dex::model
