#pragma once

#include <string>

#include "dex/v1/files.pb.h"
#include "services/gateway/openai/json_body.h"

// Files in OpenAI's shape (api.md §7, §5). Pure.
namespace dex::gateway::openai {

// {id, object: "file", bytes, created_at, filename, purpose, status, status_details, expires_at,
// dex}. A file with faults has status "error" and is no error itself, so that
// files.wait_for_processing() ends. `dex` has state, sha256, format, statistics, finding_counts and
// the first findings.
json file_object(const v1::File& file);

// "fine-tune" or "evals"; else UNSUPPORTED_PARAMETER for `field`.
base::Result<v1::FilePurpose> read_purpose(const std::string& field, const std::string& word);

}  // namespace dex::gateway::openai
