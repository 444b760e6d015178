#include "client/cli/api_key_source.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "services/base/files.h"

namespace dex::cli {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestKeyFile = 4096;

base::Status unusable(const std::string& where, const std::string& why) {
  return base::invalid_argument("INVALID_FIELD", where + " " + why);
}

// What gRPC may send in a header; it ends the process on anything else.
base::Result<std::string> checked(std::string key, const std::string& where) {
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  const bool plain =
      std::all_of(key.begin(), key.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!key.empty() && plain) return key;
  return unusable(where, "must hold one API key and nothing else");
}

base::Result<std::string> from_file(const fs::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) == 0 && (found.st_mode & 0077) != 0) {
    return unusable(file.string(),
                    "can be read by others: chmod 600 it, and ask for another key if they may "
                    "have read this one");
  }
  DEX_ASSIGN_OR_RETURN(std::string key, base::read_file(file, kLargestKeyFile));
  return checked(std::move(key), file.string());
}

}  // namespace

base::Result<std::string> find_api_key(const ApiKeySources& sources) {
  if (!sources.file.empty()) return from_file(sources.file);
  if (!sources.variable.empty()) return checked(sources.variable, "DEX_API_KEY");
  const fs::path origin = sources.server.origin;
  if (origin.filename() != "endpoints.json") return std::string();
  const fs::path key = origin.parent_path() / "admin.key";
  if (::access(key.c_str(), R_OK) != 0) return std::string();
  return from_file(key);
}

}  // namespace dex::cli
