#pragma once

#include "client/cli/command.h"
#include "client/cli/file_argument.h"
#include "client/cli/job_spec.h"

namespace dex::cli {

// The flags of a spec, as `jobs create`, `estimate` and `sweep` have them.
void add_spec_flags(CLI::App& verb, SpecFlags& flags);
// The spec that they mean, with ids in place of paths: those files are uploaded, where that is
// allowed.
base::Result<v1::FineTuningJobSpec> spec_with_files(Context& context, const SpecFlags& flags,
                                                    Upload upload);

}  // namespace dex::cli
