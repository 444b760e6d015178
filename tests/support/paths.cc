#include "tests/support/paths.h"

namespace dex::support {

std::filesystem::path source_dir() {
  return DEX_SOURCE_DIR;
}
std::filesystem::path build_dir() {
  return DEX_BINARY_DIR;
}
std::filesystem::path deps_dir() {
  return DEX_DEPS_DIR;
}

}  // namespace dex::support
