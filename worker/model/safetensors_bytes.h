#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "worker/model/safetensors.h"

namespace dex::model {

// The bytes of write_safetensors(), handed to `sink` piece by piece in order; for writers that put
// the file into a directory of their own. `source` is the file's name in messages.
void stream_safetensors(const NamedTensors& tensors,
                        const std::map<std::string, std::string>& metadata,
                        const std::string& source,
                        const std::function<void(std::string_view)>& sink);

}  // namespace dex::model
