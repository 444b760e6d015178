#pragma once

#include "dex/v1/finetuning.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/store/records.h"
#include "services/base/status.h"

namespace dex::server {

// What a SUCCEEDED preview (head_previews.h) published: its head_selection.json
// (worker/train/selection_report.h) as a message. ARTIFACT_CORRUPT. Blocks on the disk.
base::Result<v1::HeadSelectionReport> head_selection_report(const store::JobRecord& record,
                                                            const DataLayout& layout);

}  // namespace dex::server
