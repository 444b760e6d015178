#pragma once

#include <string>

#include "client/cli/command.h"

// Questions before what can't be taken back, where --yes was not given.
namespace dex::cli {

// Whether somebody sits at a terminal. False: stderr says that --yes must be given, and the command
// ends with kUsage.
bool can_be_asked(Context& context);

// Asks on stderr; anything but "y", "Y" and "yes" is a no.
bool said_yes(Context& context, const std::string& question);

// Both, before something is deleted for good. False: it may not be, and `code` is what the command
// ends with, since nobody agreed or nobody could be asked.
bool agreed(Context& context, const std::string& question, int& code);

}  // namespace dex::cli
