#include "deploy/standalone/monitoring.h"

#include <nlohmann/json.hpp>

#include "services/base/files.h"

namespace dex::standalone {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kLargestFile_bytes = 1 << 20;

base::Status write_unless_there(const fs::path& path, const std::string& content) {
  const auto there = base::read_file(path, kLargestFile_bytes);
  if (there.ok() && *there == content) return {};
  DEX_RETURN_IF_ERROR(base::make_directories(path.parent_path()));
  return base::write_file_atomically(path, content, 0644);
}

}  // namespace

base::Status write_monitoring(const fs::path& data_dir,
                              const std::map<std::string, std::string>& metrics) {
  const fs::path folder = data_dir / "monitoring";
  for (const auto& [path, content] : monitoring_files()) {
    DEX_RETURN_IF_ERROR(write_unless_there(folder / path, content));
  }
  nlohmann::json targets = nlohmann::json::array();
  for (const auto& [process, address] : metrics) {
    // Ports change from start to start; a series goes on under its name.
    targets.push_back(
        {{"targets", {address}}, {"labels", {{"job", "dex-" + process}, {"instance", "local"}}}});
  }
  return write_unless_there(folder / "targets" / "dexd.json", targets.dump(2) + "\n");
}

std::vector<std::string> prometheus_args(const fs::path& data_dir, const std::string& listen) {
  return {"--config.file=" + (data_dir / "monitoring" / "prometheus.yml").string(),
          "--storage.tsdb.path=" + (data_dir / "prometheus").string(),
          "--storage.tsdb.retention.time=15d", "--storage.tsdb.retention.size=512MB",
          "--web.listen-address=" + listen};
}

}  // namespace dex::standalone
