#pragma once

#include <string>

#include "client/cli/command.h"

// Questions before what can't be taken back, where --yes was not given.
namespace dex::cli {

// Whether somebody sits there. False: stderr says that --yes must be given, and the command ends
// with kUsage.
bool can_be_asked(Context& context);

// Asks on stderr; anything but "y", "Y" and "yes" is a no, to which `no` is noted and the command
// ends with kInterrupted.
bool agreed(Context& context, const std::string& question, const std::string& no);

}  // namespace dex::cli
