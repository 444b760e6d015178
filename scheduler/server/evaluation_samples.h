#pragma once

#include "dex/v1/evaluation.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/store/records.h"
#include "services/base/status.h"

namespace dex::server {

// A page of the samples that a SUCCEEDED evaluation published (samples-<n>.jsonl), held against the
// hashes that were published: in the order of its tasks, then as the worker wrote them.
// INVALID_FIELD for a task or subject that the evaluation has not; VALUE_OUT_OF_RANGE,
// INVALID_CURSOR; JOB_STATE_CONFLICT before it has SUCCEEDED; ARTIFACT_CORRUPT. An evaluation of a
// worker that wrote none has no samples. Blocks on the disk.
base::Result<v1::ListEvaluationSamplesResponse> evaluation_samples(
    const store::JobRecord& record, const DataLayout& layout,
    const v1::ListEvaluationSamplesRequest& request);

}  // namespace dex::server
