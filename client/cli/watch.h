#pragma once

#include <string>

#include "client/cli/command.h"

namespace dex::cli {

enum class Until {
  kEnded,
  kChecked,  // or until the job is checked and waits for its start (auto_start false)
};

// Shows a job until then, prints it as the last line of stdout and returns its exit code. Ctrl-C
// ends the watching, not the job, and prints the command to go on.
int follow_job(Context& context, const std::string& id, int64_t after_sequence,
               Until until = Until::kEnded);

}  // namespace dex::cli
