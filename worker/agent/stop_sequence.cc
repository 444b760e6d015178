#include "worker/agent/stop_sequence.h"

namespace dex::agent {

StopSequence::Due StopSequence::due(Order order, int64_t now_ms) {
  Due due;
  if (order > order_) {
    order_ = order;
    const bool at_once = order == Order::kCancel || order == Order::kLost;
    sigterm_at_ms_ = now_ms + (at_once ? 0 : options_.stop_grace_ms);
    sigkill_at_ms_ = sigterm_at_ms_ + options_.kill_grace_ms;
    sigterm_sent_ = false;
    sigkill_sent_ = false;
    due.frame = true;
    due.grace_ms = sigkill_at_ms_ - now_ms;
  }
  if (order_ == Order::kNone) return due;
  if (!sigterm_sent_ && now_ms >= sigterm_at_ms_) due.sigterm = sigterm_sent_ = true;
  if (!sigkill_sent_ && now_ms >= sigkill_at_ms_) due.sigkill = sigkill_sent_ = true;
  return due;
}

}  // namespace dex::agent
