#pragma once

#include <string>
#include <string_view>

#include "worker/model/adapter.h"

namespace dex::model {

// adapter_config.json of architecture.md §6 ⇄ Adapter without its tensors: `adaptation` has the
// options only. The reader checks every key against `config` and throws "[adapter] <source>: key …,
// expected …, found …".
std::string adapter_config_json(const Adapter& adapter);
Adapter parse_adapter_config(std::string_view json, const Config& config,
                             const std::string& source);

}  // namespace dex::model
