#include "client/cli/config_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "client/cli/did_you_mean.h"
#include "services/base/files.h"

namespace dex::cli {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestConfig = 64 << 10;
constexpr const char* kDefaultProfile = "default";

base::Status wrong(const fs::path& file, const std::string& what) {
  return base::invalid_argument("INVALID_FIELD", file.string() + ": " + what);
}

// The fields of a profile by their keys in the file.
std::map<std::string, std::string*> fields_of(Profile& profile) {
  return {{"server", &profile.server},
          {"output", &profile.output},
          {"api_key_file", &profile.api_key_file}};
}

base::Status check_value(const fs::path& file, const std::string& key, const std::string& value) {
  static const std::set<std::string> formats = {"table", "json", "jsonl", "id"};
  if (value.empty()) return wrong(file, key + " has no value; leave the line out instead");
  if (key == "output" && !formats.contains(value))
    return wrong(file, "output must be table, json, jsonl or id, got '" + value + "'");
  return {};
}

// One line `key = value` below [profile.<name>].
base::Status set_value(const fs::path& file, const CLI::ConfigItem& item, Profile& profile) {
  auto fields = fields_of(profile);
  const auto field = fields.find(item.name);
  if (field == fields.end()) {
    std::vector<std::string> known;
    for (const auto& [key, target] : fields) known.push_back(key);
    return wrong(file, "a profile has no '" + item.name + "'" + did_you_mean(item.name, known) +
                           "; it has " + CLI::detail::join(known, ", "));
  }
  if (item.inputs.size() != 1 || !field->second->empty())
    return wrong(file, item.name + " of profile '" + profile.name + "' takes one value");
  DEX_RETURN_IF_ERROR(check_value(file, item.name, item.inputs.front()));
  *field->second = item.inputs.front();
  return {};
}

base::Result<std::map<std::string, Profile>> profiles_of(const fs::path& file,
                                                         const std::string& text) {
  std::istringstream lines(text);
  std::map<std::string, Profile> profiles;
  for (const auto& item : CLI::ConfigTOML().from_config(lines)) {
    const bool is_table = item.parents.size() == 2 && item.parents[0] == "profile";
    if (item.name == "--" || (item.name == "++" && item.parents.size() == 1)) continue;
    if (!is_table) {
      return wrong(file, "'" + CLI::detail::join(item.parents, ".") +
                             (item.parents.empty() || item.name == "++" ? "" : ".") +
                             (item.name == "++" ? "" : item.name) +
                             "' belongs to no profile; profiles begin with a line [profile.NAME]");
    }
    Profile& profile = profiles[item.parents[1]];
    profile.name = item.parents[1];
    if (item.name != "++") DEX_RETURN_IF_ERROR(set_value(file, item, profile));
  }
  return profiles;
}

}  // namespace

fs::path default_config_file(const std::string& config_home, const std::string& home) {
  // The XDG rules have a relative one ignored.
  if (fs::path(config_home).is_absolute()) return fs::path(config_home) / "dex/config.toml";
  return home.empty() ? fs::path() : fs::path(home) / ".config/dex/config.toml";
}

base::Result<Profile> read_profile(const fs::path& file, const std::string& name) {
  std::error_code error;
  const fs::file_status found = file.empty() ? fs::file_status() : fs::status(file, error);
  if (!fs::exists(found)) {
    if (name.empty()) return Profile{};
    return base::not_found("RESOURCE_NOT_FOUND",
                           "there is no profile '" + name + "', since there is no " +
                               (file.empty() ? "~/.config/dex/config.toml" : file.string()) +
                               "; name the server with --server instead");
  }
  const auto others = fs::perms::group_all | fs::perms::others_all;
  if ((found.permissions() & others) != fs::perms::none)
    return wrong(file,
                 "others can read or change it; close it to them: chmod 600 " + file.string());
  DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(file, kLargestConfig));
  DEX_ASSIGN_OR_RETURN(const auto profiles, profiles_of(file, text));
  const auto chosen = profiles.find(name.empty() ? kDefaultProfile : name);
  if (chosen != profiles.end()) return chosen->second;
  if (name.empty()) return Profile{};
  std::vector<std::string> names;
  for (const auto& [each, profile] : profiles) names.push_back(each);
  return base::not_found(
      "RESOURCE_NOT_FOUND",
      file.string() + " has no profile '" + name + "'" + did_you_mean(name, names) +
          (names.empty() ? "; it has none" : "; it has " + CLI::detail::join(names, ", ")));
}

}  // namespace dex::cli
