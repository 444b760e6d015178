#pragma once

#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace dex::core {

inline constexpr int kMostSweptJobs = 64;  // of one call (api.md §2); what the store takes at once

// One job of a batch, and what of a grid it is: "dex.lambda.end=0.5, seed=2"; "" where there is no
// grid.
struct SweptSpec {
  dex::v1::FineTuningJobSpec spec;
  std::string point;
};

// The jobs that a batch asks for, in the order of its specs, or of its grid with the last axis
// fastest. Values are set as protobuf JSON would: a list or message replaces what `spec` has there.
// INVALID_ARGUMENT: neither specs nor a spec with a sweep, or both; no or more than kMostSweptJobs
// jobs; a path that is no field of a spec (UNKNOWN_FIELD), is given twice or names a part of
// another; a value that the field can't have. Pure.
base::Result<std::vector<SweptSpec>> swept_specs(
    const dex::v1::BatchCreateFineTuningJobsRequest& request);

}  // namespace dex::core
