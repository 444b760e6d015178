#pragma once

#include <string>
#include <string_view>

#include "worker/model/adapter.h"

namespace dex::model {

// adapter_config.json of a LoRA adapter as PEFT writes and reads it (`peft_type` LORA).
//
// Honoured when read: r, lora_alpha, use_rslora, target_modules (a list), exclude_modules,
// layers_to_transform, rank_pattern, alpha_pattern. Whatever else changes the result is refused by
// its key: use_dora, modules_to_save, lora_bias, bias, fan_in_fan_out, starts that rewrite the base
// (pissa, olora, corda, loftq), and any key that this reader does not know, unless it is off (null,
// false, 0 or empty): PEFT's later versions add keys that are off by default.
std::string peft_config_json(const Adapter& adapter);

// Adapter without its tensors: options, and in `adaptation.layers` for each term that the file must
// hold its scale and unfilled tensors of its shape. Throws "[adapter] <source>: key …, expected …,
// found …".
Adapter parse_peft_config(std::string_view json, const Config& config, const std::string& source);

// Whether the text is a config of PEFT's LoRA.
bool is_peft_lora(std::string_view json, const std::string& source);

}  // namespace dex::model
