#pragma once

#include <string>

#include "client/cli/command.h"

namespace dex::cli {

// Asks on the terminal before something is deleted for good. False: it may not be, and `code` is
// what the command ends with, since nobody agreed or nobody could be asked.
bool agreed(Context& context, const std::string& question, int& code);

}  // namespace dex::cli
