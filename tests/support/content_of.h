#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace dex::support {

// The bytes of a file; "" when it can't be read.
inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace dex::support
