#include "scheduler/server/data_layout.h"

#include <string_view>
#include <vector>

#include "services/base/files.h"

namespace dex::server {

namespace fs = std::filesystem;

base::Status DataLayout::prepare() const {
  for (const char* folder : {"files/sha256", "files/upload", "files/findings", "jobs"}) {
    DEX_RETURN_IF_ERROR(base::make_directories(root_ / folder));
  }
  return {};
}

std::string DataLayout::blob(const std::string& sha256) {
  return "files/sha256/" + sha256.substr(0, 2) + "/" + sha256.substr(2, 2) + "/" + sha256;
}

std::string DataLayout::attempt(const std::string& tenant, const std::string& job, int64_t epoch) {
  return "jobs/" + tenant + "/" + job + "/attempt-" + std::to_string(epoch);
}

std::string DataLayout::job(const std::string& tenant, const std::string& job) {
  return "jobs/" + tenant + "/" + job;
}

bool DataLayout::is_in_attempt(const std::string& path, const std::string& job, int64_t epoch) {
  if (fs::path(path).lexically_normal().string() != path) return false;  // no "..", no "//"
  std::vector<std::string> parts;
  for (const fs::path& part : fs::path(path)) parts.push_back(part.string());
  if (parts.size() < 5 || parts[0] != "jobs" || parts[2] != job || parts.back().empty())
    return false;
  constexpr std::string_view kAttemptPrefix = "attempt-";
  if (!parts[3].starts_with(kAttemptPrefix)) return false;
  const std::string number = parts[3].substr(kAttemptPrefix.size());
  if (epoch >= 0) return number == std::to_string(epoch);
  return !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
}

std::string DataLayout::texts(const std::string& tenant, const std::string& job) {
  return "jobs/" + tenant + "/" + job + "/texts.jsonl";
}

std::string DataLayout::uploaded_adapter(const std::string& tenant, const std::string& job) {
  return DataLayout::job(tenant, job) + "/upload";
}

fs::path DataLayout::events(const std::string& tenant, const std::string& job) const {
  return root_ / DataLayout::job(tenant, job) / "events.jsonl";
}

fs::path DataLayout::kept_spec(const std::string& tenant, const std::string& job) const {
  return root_ / DataLayout::job(tenant, job) / "spec.pb";
}

fs::path DataLayout::upload(const std::string& name) const {
  return all_uploads() / name;
}

fs::path DataLayout::findings(const std::string& file) const {
  return all_findings() / (file + ".pb");
}

base::Result<fs::path> DataLayout::absolute(const std::string& relative) const {
  const fs::path path = fs::path(relative).lexically_normal();
  if (relative.empty() || path.is_absolute() || path.begin()->string() == "..") {
    return base::invalid_argument("PATH_NOT_ALLOWED",
                                  "'" + relative + "' is not a path below the data directory");
  }
  return root_ / path;
}

}  // namespace dex::server
