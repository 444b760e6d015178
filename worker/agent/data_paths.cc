#include "worker/agent/data_paths.h"

#include <algorithm>

namespace dex::agent {

namespace fs = std::filesystem;

DataPaths::DataPaths(fs::path data_dir) : data_dir_(data_dir.lexically_normal()) {
  if (!data_dir_.has_filename()) data_dir_ = data_dir_.parent_path();  // a trailing slash
}

base::Result<fs::path> DataPaths::absolute(const std::string& path) const {
  const fs::path given(path);
  const fs::path joined = given.is_absolute() ? given : data_dir_ / given;
  const bool climbs = std::ranges::any_of(given, [](const fs::path& p) { return p == ".."; });
  const fs::path inside = joined.lexically_relative(data_dir_);
  if (path.empty() || climbs || inside.empty() || *inside.begin() == ".." || inside == ".") {
    return base::invalid_argument("PATH_NOT_ALLOWED",
                                  "'" + path + "' is not below " + data_dir_.string());
  }
  return joined.lexically_normal();
}

base::Result<std::string> DataPaths::relative(const std::string& path) const {
  DEX_ASSIGN_OR_RETURN(const auto whole, absolute(path));
  return whole.lexically_relative(data_dir_).string();
}

}  // namespace dex::agent
