#include "tests/support/artefacts.h"

#include <map>
#include <nlohmann/json.hpp>

#include "services/base/sha256.h"
#include "tests/support/content_of.h"

namespace dex::support {

namespace fs = std::filesystem;

namespace {

using nlohmann::json;

// file → SHA-256, of a checkpoint's MANIFEST.json or of checksums.json; empty when there is none.
std::map<std::string, std::string> manifest_of(const fs::path& folder, bool is_final) {
  std::map<std::string, std::string> files;
  const std::string name = is_final ? "checksums.json" : "MANIFEST.json";
  const json manifest = json::parse(content_of(folder / name), nullptr, false);
  if (manifest.is_discarded()) return files;
  if (is_final) {
    for (const auto& [file, sha256] : manifest.items()) files[file] = sha256.get<std::string>();
  } else {
    for (const json& file : manifest.at("files")) {
      files[file.at("name").get<std::string>()] = file.at("sha256").get<std::string>();
    }
  }
  return files;
}

void look_at(const fs::path& folder, std::vector<std::string>& torn) {
  const bool is_final = folder.filename() == "final";
  const auto files = manifest_of(folder, is_final);
  if (files.empty()) torn.push_back(folder.string() + " has no manifest");
  for (const auto& [name, sha256] : files) {
    const auto found = base::sha256_file(folder / name);
    if (!found.ok()) {
      torn.push_back((folder / name).string() + " is missing");
    } else if (*found != sha256) {
      torn.push_back((folder / name).string() + " is not what its manifest says");
    }
  }
}

}  // namespace

std::vector<std::string> torn_artefacts(const fs::path& data_dir) {
  std::vector<std::string> torn;
  std::error_code none;  // no job has run yet
  for (fs::recursive_directory_iterator it(data_dir / "jobs", none), end; it != end;
       it.increment(none)) {
    const std::string name = it->path().filename().string();
    const bool in_attempt = it->path().parent_path().filename().string().starts_with("attempt-");
    if (!in_attempt || !it->is_directory() || name.ends_with(".tmp")) continue;
    if (name == "final" || name.starts_with("step-")) look_at(it->path(), torn);
  }
  return torn;
}

}  // namespace dex::support
