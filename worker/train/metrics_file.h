#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace dex::train {

// metrics.jsonl of an attempt: one JSON object a line, flushed at once. A convenience for people
// and plots: losing a line (a full disk) never stops a job. One thread.
class MetricsFile {
 public:
  explicit MetricsFile(const std::filesystem::path& path) : out_(path, std::ios::app) {}
  void line(const std::string& json) {
    out_.clear();
    out_ << json << '\n' << std::flush;
  }

 private:
  std::ofstream out_;
};

}  // namespace dex::train
