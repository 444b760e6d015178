#pragma once

#include <string>

#include "client/cli/command.h"

namespace dex::cli {

// Shows a job until it has ended, prints it as the last line of stdout and returns its exit code.
// Ctrl-C ends the watching, not the job, and prints the command to go on.
int follow_job(Context& context, const std::string& id, int64_t after_sequence);

}  // namespace dex::cli
