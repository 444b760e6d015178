#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "client/cli/command.h"

namespace dex::cli {

// The options of dexctl itself, which may stand behind any command.
struct Globals {
  std::string server;
  std::string profile;
  std::string api_key_file;  // empty: the profile's, else as find_api_key() says
  std::string output;        // empty: the profile's, else table
  double timeout_seconds = 60;
  std::string request_id;
  bool quiet = false;
  bool verbose = false;
  bool no_color = false;
};

// dexctl's whole command line, as it is parsed, helped with, completed and printed as a man page.
// After app.parse() either `local` or `action` is what was chosen.
struct CommandLine {
  CommandLine();
  CommandLine(const CommandLine&) = delete;  // the options point into it
  CommandLine& operator=(const CommandLine&) = delete;

  CLI::App app;
  Globals globals;
  Action action;
  LocalAction local;
};

// The lines of a command's help that are examples, without what stands before and behind them.
std::vector<std::string> examples_of(const CLI::App& command);

}  // namespace dex::cli
