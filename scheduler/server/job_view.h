#pragma once

#include <optional>
#include <string>

#include "dex/internal/v1/worker.pb.h"
#include "dex/v1/adapters.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "scheduler/store/records.h"

// Between what the store keeps and what users see. Pure.
namespace dex::server {

namespace iv1 = dex::internal::v1;

// A job's `spec` in the store is a FineTuningJob with what never changes: effective_config,
// warnings, model, names, files, seed. stored_spec() fills it from there; view() adds what moves.
v1::FineTuningJob fixed_part(const v1::EffectiveConfig& config);
v1::FineTuningJob job_view(const store::JobRecord& record, bool with_config = true);
v1::JobState public_state(const store::JobRecord& record, const v1::Progress& progress);
// The effective spec of a stored job.
v1::FineTuningJobSpec effective_spec(const std::string& stored);

v1::FineTuningEvent event_view(const std::string& job, const store::LogEntry& entry);
// Whether an entry of this type ends a job's log.
bool is_last_event(const std::string& type);
// Whether the store writes entries of this type itself; workers may not.
bool is_reserved_event(const std::string& type);
store::NewEvent new_event(const v1::FineTuningEvent& event);

// "TRAINING" ↔ JOB_PHASE_TRAINING; "" ↔ UNSPECIFIED.
std::string phase_word(v1::JobPhase phase);
v1::JobPhase phase_of(const std::string& word);

store::Checkpoint checkpoint_of(const iv1::CheckpointRef& ref);

// Without replicas.
v1::Adapter adapter_view(const store::AdapterRecord& record);
// Method and λ of a job that would have made an imported adapter; nothing when none makes such a
// one.
std::optional<v1::FineTuningJobSpec> made_as(const store::AdapterRecord& record);
// The base model in "ft:<base>:<tenant>:<suffix>:<ulid>".
std::string base_of_adapter(const std::string& adapter_id);

}  // namespace dex::server
