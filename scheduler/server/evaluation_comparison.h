#pragma once

#include "dex/v1/evaluation.pb.h"
#include "scheduler/server/data_layout.h"
#include "scheduler/server/model_catalog.h"
#include "scheduler/store/records.h"
#include "services/base/status.h"

namespace dex::server {

// What evaluation `b` has measured against what `a` has, item by item (CompareEvaluations), from
// the numbers that both have published (services/statistics/item_rows.h): bit for bit what one
// evaluation of both subjects would say. INVALID_FIELD for a label that one of them has not;
// JOB_STATE_CONFLICT before both have SUCCEEDED; CONFLICTING_FIELDS with the reasons when they have
// no items in common; ARTIFACT_CORRUPT. Reads up to 16 MiB a task, and computes for seconds where
// there are many thousand items.
base::Result<v1::CompareEvaluationsResponse> compare_evaluations(
    const store::JobRecord& a, const store::JobRecord& b, const ModelCatalog& models,
    const DataLayout& layout, const v1::CompareEvaluationsRequest& request);

}  // namespace dex::server
