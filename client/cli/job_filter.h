#pragma once

#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace CLI {
class App;
}

namespace dex::cli {

// What `jobs list` is asked for, as typed; empty: all.
struct JobFilterFlags {
  std::vector<std::string> states, metadata;
  std::string model, method, preset, suffix, text, created_after, created_before;
};

void add_job_filter_flags(CLI::App& verb, JobFilterFlags& flags);
// INVALID_FIELD by the flag's or the field's name.
base::Result<v1::ListFineTuningJobsRequest::Filter> make_job_filter(const JobFilterFlags& flags);

}  // namespace dex::cli
