#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dex::store {

// One Lua script as Redis gets it (lib.lua inside), with its SHA-1, which is how EVALSHA names it.
struct Script {
  Script(std::string name, std::string text);
  std::string name;  // "claim": also the label of its metrics
  std::string text;
  std::string sha1;
};

const std::vector<Script>& all_scripts();
// Aborts for a name that is not among them: the names are written in this room only.
const Script& find_script(std::string_view name, const std::vector<Script>& scripts);

}  // namespace dex::store
