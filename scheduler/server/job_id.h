#pragma once

#include <cstdint>
#include <string>

#include "services/auth/principal.h"
#include "services/base/status.h"

// What the services over the job queue share: kinds, and ids and priorities as clients send them.
namespace dex::server {

// NewJob::kind, and what the ids of that kind begin with: "ftjob-", "eval-", "heads-", "probe-",
// "import-", "export-".
inline constexpr const char* kFineTuningKind = "finetune";
inline constexpr const char* kEvaluationKind = "evaluation";
inline constexpr const char* kHeadSelectionKind = "head_selection";  // previews (head_previews.h)
inline constexpr const char* kProbeKind = "probe";                   // memory_probes.h
inline constexpr const char* kAdapterImportKind = "adapter_import";
inline constexpr const char* kAdapterExportKind = "adapter_export";
inline constexpr const char* kImportPrefix = "import-";
inline constexpr const char* kExportPrefix = "export-";

// Code of an export that ended because its adapter was deleted before a worker came to it.
inline constexpr const char* kAdapterDeletedCode = "adapter_deleted";

// MISSING_FIELD with the field.
base::Status missing(const std::string& field);

// Before something new is acknowledged: `health` of the store as UNAVAILABLE STORE_UNAVAILABLE, so
// that clients come back.
base::Status store_keeps(const base::Status& health);

// MISSING_FIELD for an empty id; RESOURCE_NOT_FOUND for one that `prefix` ("ftjob-") does not
// begin, exactly as for an object that does not exist. `type` is what is looked for: "job".
base::Status check_job_id(const std::string& id, const std::string& prefix,
                          const std::string& type);

// SCOPE_MISSING for a priority of 7 to 9 that no operator gives (api.md §3). More than 9 is not
// this function's to refuse.
base::Status check_priority_scope(const auth::Principal& who, uint32_t priority);

}  // namespace dex::server
