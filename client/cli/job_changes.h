#pragma once

#include "client/cli/command.h"

namespace dex::cli {

// The verbs of `jobs` that change a job that exists: pause, resume, update, delete, redrive.
void add_job_changes(CLI::App& jobs, Action& action);

}  // namespace dex::cli
