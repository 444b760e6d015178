#pragma once

#include <cstddef>
#include <optional>

#include "dex/v1/finetuning.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/store/records.h"
#include "services/base/status.h"

namespace dex::server {

// What a SUCCEEDED preview (head_previews.h) published: its head_selection.json
// (worker/train/selection_report.h) as a message, with its picture where it is wanted and is not
// larger than kLargestPicture. ARTIFACT_CORRUPT. Blocks on the disk.
inline constexpr size_t kLargestPicture = 3 << 20;
base::Result<v1::HeadSelectionReport> head_selection_report(const store::JobRecord& record,
                                                            const DataLayout& layout,
                                                            bool with_picture);

// The same of a SUCCEEDED job, as it chose last: what its trainer left beside the artefact.
// Nothing: the job has no branch.
base::Result<std::optional<v1::HeadSelectionReport>> head_selection_of_job(
    const store::JobRecord& record, const DataLayout& layout);

}  // namespace dex::server
