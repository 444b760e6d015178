#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace dex::cli {

// dexctl(1) for groff's man macros, made from the command line itself: every command with what it
// does, its arguments, options and examples, then environment, files and exit codes. The same
// command line and version give the same bytes. Pure.
std::string man_page(const CLI::App& root, std::string_view version);

}  // namespace dex::cli
