#pragma once

#include "dex/v1/finetuning.pb.h"
#include "services/gateway/openai/json_body.h"

// POST /v1/fine_tuning/jobs → our request (api.md §3, §7). Pure.
namespace dex::gateway::openai {

// The body's object as a request without request_id. `method` is {"type": T, T: {…}}: "supervised",
// which is `dex` with OpenAI's three hyperparameters, or a method of ours, whose block is its
// message in protobuf JSON and may hold `hyperparameters` too. Hyperparameters may stand in the
// method's block or at the top (deprecated by OpenAI): both → CONFLICTING_FIELDS. "auto" leaves a
// value to the server. `dex` is our FineTuningJobSpec in protobuf JSON, for all that OpenAI has no
// field for; what it and OpenAI's fields both set → CONFLICTING_FIELDS.
base::Result<v1::CreateFineTuningJobRequest> read_create_job(const json& body);

}  // namespace dex::gateway::openai
