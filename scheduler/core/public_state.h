#pragma once

#include <string_view>

#include "dex/v1/finetuning.pb.h"

namespace dex::core {

// What Redis stores of a job's state (jobs.md §2).
struct StoredState {
  std::string_view state;  // DELAYED READY RUNNING CANCELLING PAUSED SUCCEEDED FAILED CANCELLED
  std::string_view want;   // run, pause, hold
  dex::v1::JobPhase phase = dex::v1::JOB_PHASE_UNSPECIFIED;
  uint32_t step = 0;          // updates done
  std::string_view why_code;  // error code of the end
};

// The one function that makes the public state, for every reply, event and metric.
dex::v1::JobState public_state(const StoredState& stored);

// Why a queued job waits; `in_ring`: its tenant may be served now; `lacks_model`: no worker of its
// pool has its base model, which outlasts whatever else it waits for. UNSPECIFIED when it does not
// wait.
dex::v1::WaitingReason waiting_reason(const StoredState& stored, bool in_ring, bool lacks_model);

bool is_terminal(dex::v1::JobState state);

// Who acts on an error code of api.md §3, or on an evaluation's invalid_evaluation_file (USER,
// CAPACITY, SYSTEM).
std::string_view error_category(std::string_view code);

}  // namespace dex::core
