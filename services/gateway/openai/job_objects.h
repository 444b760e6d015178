#pragma once

#include "dex/v1/events.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "services/gateway/openai/json_body.h"

// Jobs, their events and checkpoints in OpenAI's shape (api.md §3, §4, §7). Pure.
namespace dex::gateway::openai {

// OpenAI's word for a state. EXPIRED is "failed" (code deadline_exceeded), PAUSED "paused", which
// the openai package passes on though it does not know it.
const char* status_word(v1::JobState state);

// {id, object: "fine_tuning.job", …, dex}. `organization` is the tenant. Items of a list carry no
// configuration, so their `method` is null and their hyperparameters are too.
json job_object(const v1::FineTuningJob& job, const std::string& organization);

// {id, object: "fine_tuning.job.event", created_at, level, message, type, data, dex}. type is
// "metrics" for those of an update or evaluation, with OpenAI's names beside ours in data, else
// "message".
json event_object(const v1::FineTuningEvent& event);

// {id, object: "fine_tuning.job.checkpoint", …}. `job` is the one that it belongs to. The model
// that a checkpoint names can be called only where it is the published one (dex.usable): training
// states of other steps are no adapters.
json checkpoint_object(const v1::Checkpoint& checkpoint, const v1::FineTuningJob& job,
                       const std::string& organization);

}  // namespace dex::gateway::openai
