#pragma once

#include <string_view>

namespace dex::base {

std::string_view version();  // "0.1.0"
std::string_view commit();   // short hash of the source when it was configured, or "unknown"

}  // namespace dex::base
