#include "scheduler/core/public_state.h"

#include <algorithm>
#include <array>

namespace dex::core {

v1::JobState public_state(const StoredState& stored) {
  if (stored.state == "DELAYED" || stored.state == "READY") return v1::JOB_STATE_QUEUED;
  if (stored.state == "RUNNING") {
    if (stored.want == "pause") return v1::JOB_STATE_PAUSING;
    const bool validating = stored.phase == v1::JOB_PHASE_VALIDATING && stored.step == 0;
    return validating ? v1::JOB_STATE_VALIDATING_FILES : v1::JOB_STATE_RUNNING;
  }
  if (stored.state == "CANCELLING") return v1::JOB_STATE_CANCELLING;
  if (stored.state == "PAUSED") return v1::JOB_STATE_PAUSED;
  if (stored.state == "SUCCEEDED") return v1::JOB_STATE_SUCCEEDED;
  if (stored.state == "FAILED") return v1::JOB_STATE_FAILED;
  if (stored.state == "CANCELLED") {
    return stored.why_code == "deadline_exceeded" ? v1::JOB_STATE_EXPIRED : v1::JOB_STATE_CANCELLED;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

v1::WaitingReason waiting_reason(const StoredState& stored, bool in_ring, bool lacks_model) {
  if (stored.state == "DELAYED") return v1::WAITING_REASON_RETRY_BACKOFF;
  if (stored.state != "READY") return v1::WAITING_REASON_UNSPECIFIED;
  if (lacks_model) return v1::WAITING_REASON_MODEL;
  return in_ring ? v1::WAITING_REASON_CAPACITY : v1::WAITING_REASON_QUOTA;
}

bool is_terminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED || state == v1::JOB_STATE_EXPIRED;
}

std::string_view error_category(std::string_view code) {
  constexpr std::array kUser = {
      "invalid_training_file", "invalid_hyperparameter", "non_finite_loss",
      "loss_diverged",         "base_guard_tripped",     "gate_failed",
      "adapter_mismatch",      "deadline_exceeded",      "invalid_evaluation_file"};
  constexpr std::array kCapacity = {"out_of_memory", "quota_exceeded", "disk_full"};
  const auto in = [code](const auto& list) {
    return std::find(list.begin(), list.end(), code) != list.end();
  };
  if (in(kUser)) return "USER";
  return in(kCapacity) ? "CAPACITY" : "SYSTEM";
}

}  // namespace dex::core
