#pragma once

#include "client/cli/command.h"

namespace dex::cli {

// The verb `alias` of `dexctl adapters`.
void add_aliases(CLI::App& adapters, Action& action);

}  // namespace dex::cli
