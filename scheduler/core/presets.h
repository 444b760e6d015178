#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dex/v1/models.pb.h"
#include "services/base/status.h"

namespace dex::core {

// Size classes of method.md §5, by parameter count: small < 1.0e9 ≤ medium ≤ 3.5e9 < large.
enum class SizeClass { kSmall, kMedium, kLarge };
SizeClass size_class(int64_t parameters);

// Names in the order in which they are shown: paper, small, medium, large, code, long_text,
// multilingual.
const std::vector<std::string_view>& preset_names();

// The name as presets carry it: a command line's long-text@1 is long_text@1.
std::string canonical_preset_name(std::string_view name);

// The preset's values for a base model of this class, each with its source (paper, brief, ours).
// `name` may carry a version ("code@1") and be "auto", which means the size class. UNKNOWN_PRESET
// names what there is.
base::Result<dex::v1::Preset> preset(std::string_view name, SizeClass size);

}  // namespace dex::core
