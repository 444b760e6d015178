#pragma once

#include <string>
#include <string_view>

#include "scheduler/store/reply.h"
#include "services/base/status.h"

// What the scripts' refusals are to a caller (jobs.md §9). Ids come from anywhere, so messages show
// them as text (alphabet.h).
namespace dex::store {

// The same for a missing job and for another tenant's.
base::Status job_not_found(const std::string& id);
base::Status state_conflict(const std::string& id, const std::string& state);
// `state`: of the file's record; empty: missing, or another tenant's.
base::Status file_refused(const std::string& id, const std::string& state);
base::Status adapter_not_found(const std::string& id);  // or another tenant's
// CONFLICT, IDTAKEN, NOTUNIQUE, NOFILE, NOADAPTER, QUOTA, BADARG of the scripts that let jobs in.
base::Status entry_refused(std::string_view script, const Reply& reply);

}  // namespace dex::store
