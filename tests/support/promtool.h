#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temporary_directory.h"

namespace dex::support {

// What `promtool check metrics` has to say about an exposition: empty when it finds no fault. Needs
// Debian's prometheus package.
inline std::string promtool_complaints(const std::string& exposition) {
  const TemporaryDirectory directory;
  const auto file = directory.path() / "metrics.txt";
  std::ofstream(file) << exposition;
  const std::string command = "promtool check metrics < '" + file.string() + "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "promtool cannot be started";
  std::string said;
  std::array<char, 4096> buffer{};
  size_t got = 0;
  while ((got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0) said.append(buffer.data(), got);
  const int status = pclose(pipe);
  return status == 0 ? said : said + " (exit status " + std::to_string(status) + ")";
}

}  // namespace dex::support
