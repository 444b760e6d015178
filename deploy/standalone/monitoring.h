#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "services/base/status.h"

namespace dex::standalone {

// What lies in deploy/monitoring for Prometheus, by path below it: prometheus.yml, rules/*.yml.
// Made by embed_monitoring.cmake.
const std::vector<std::pair<std::string, std::string>>& monitoring_files();

// Writes DIR/monitoring: those files, and targets/dexd.json with `metrics`, by process
// ("scheduler" → "127.0.0.1:9100"). With it this dexd's Prometheus works, and any other:
// prometheus --config.file DIR/monitoring/prometheus.yml. What is there already is not written
// again.
base::Status write_monitoring(const std::filesystem::path& data_dir,
                              const std::map<std::string, std::string>& metrics);

// Prometheus' arguments: configuration from DIR/monitoring, data in DIR/prometheus, at most 15 days
// and 512 MB of it, `listen` as "127.0.0.1:9090".
std::vector<std::string> prometheus_args(const std::filesystem::path& data_dir,
                                         const std::string& listen);

}  // namespace dex::standalone
