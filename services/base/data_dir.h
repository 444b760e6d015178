#pragma once

#include <filesystem>
#include <string>

namespace dex::base {

// Where a platform on this machine keeps everything unless it is told otherwise, so that dexd and
// dexctl mean the same folder: `variable` (DEX_DATA_DIR), else .local/share/dex below `home`
// (HOME). Empty when neither is set.
inline std::filesystem::path default_data_dir(const std::string& variable,
                                              const std::string& home) {
  if (!variable.empty()) return std::filesystem::absolute(variable).lexically_normal();
  if (home.empty()) return {};
  return std::filesystem::path(home) / ".local/share/dex";
}

}  // namespace dex::base
