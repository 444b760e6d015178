#pragma once

#include <cstddef>

#include "dex/v1/evaluation.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/store/records.h"
#include "services/base/status.h"

// Between what the store and the disk keep of an evaluation and what users see.
namespace dex::server {

// An evaluation's `spec` in the store is an EvaluationSpec: the effective one.
v1::EvaluationSpec stored_evaluation(const std::string& stored);
// Without results and report. Pure.
v1::Evaluation evaluation_view(const store::JobRecord& record);

// Reads results.json and report.md of a SUCCEEDED evaluation into `evaluation` and holds them
// against the hash that was published. DATA_LOSS ARTIFACT_CORRUPT when they are not what they were.
// Blocks on the disk.
base::Status add_results(const store::JobRecord& record, const DataLayout& layout,
                         v1::Evaluation& evaluation);

// What a reply may have with its pictures: below gRPC's 4 MiB, with room for what goes around it.
inline constexpr size_t kLargestPicturedReply = 7 << 19;
// Reads the pictures that were published beside them, by name, as long as `evaluation` stays
// within that; of the others the names. Same errors.
base::Status add_pictures(const store::JobRecord& record, const DataLayout& layout,
                          v1::Evaluation& evaluation);

}  // namespace dex::server
