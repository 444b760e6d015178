#include "deploy/standalone/admin_key.h"

#include <sys/stat.h>

#include <string>

#include "services/auth/api_key.h"
#include "services/base/files.h"

namespace dex::standalone {

namespace fs = std::filesystem;

namespace {

base::Status unusable(const fs::path& file, const std::string& why) {
  return base::failed_precondition("ADMIN_KEY_UNUSABLE", file.string() + " " + why);
}

}  // namespace

base::Result<fs::path> prepare_admin_key(const fs::path& data_dir, base::RandomSource& random) {
  const fs::path file = data_dir / "admin.key";
  struct stat found {};
  if (::lstat(file.c_str(), &found) != 0) {
    DEX_RETURN_IF_ERROR(base::write_file_atomically(file, auth::make_api_key(random) + "\n", 0600));
    return file;
  }
  if ((found.st_mode & 0077) != 0) {
    return unusable(file,
                    "can be read by others: chmod 600 it, and if they may have read it, "
                    "revoke the key and remove the file; the next start makes a new one");
  }
  DEX_ASSIGN_OR_RETURN(std::string key, base::read_file(file, 4096));
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  if (auth::is_api_key(key)) return file;
  return unusable(file,
                  "holds no API key, dex_ and 49 letters and digits; remove it, and the next "
                  "start makes a new one");
}

}  // namespace dex::standalone
