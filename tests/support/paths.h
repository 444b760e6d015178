#pragma once

#include <filesystem>

namespace dex::support {

// Where this checkout lies, its build, and what deploy/setup fetched (DEX_DEPS_DIR). All are
// absolute. They are functions of one small file, not macros of every test, so that the compiler's
// cache serves any checkout.
std::filesystem::path source_dir();
std::filesystem::path build_dir();
std::filesystem::path deps_dir();

}  // namespace dex::support
