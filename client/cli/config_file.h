#pragma once

#include <filesystem>
#include <string>

#include "services/base/status.h"

namespace dex::cli {

// One [profile.<name>] of the user's configuration file (api.md §8): what the options of the same
// names are worth where they are not given.
struct Profile {
  std::string name;          // empty: none is in use
  std::string server;        // host:port; empty: not set
  std::string output;        // table, json, jsonl or id; empty: not set
  std::string api_key_file;  // empty: not set
};

// $XDG_CONFIG_HOME/dex/config.toml, where that is not set ~/.config/dex/config.toml; empty when
// `home` is empty too.
std::filesystem::path default_config_file(const std::string& config_home, const std::string& home);

// The profile of that name; with an empty name the one called "default", or none where the file or
// that profile is missing. Blocks on the disk. INVALID_ARGUMENT names the file and what is wrong:
// others may read it (it says where to take keys from), a key or profile that there isn't (with the
// nearest one that there is), a value that is none.
base::Result<Profile> read_profile(const std::filesystem::path& file, const std::string& name);

}  // namespace dex::cli
