#include "worker/train/controls.h"

#include <utility>

namespace dex::train {

void Controls::poll() {
  for (Command command = session_.poll(); command.kind != Command::Kind::kNone;
       command = session_.poll()) {
    if (command.kind == Command::Kind::kCheckpoint) {
      request_ = command.request;
      continue;
    }
    if (command.kind == Command::Kind::kAcknowledged) {
      acknowledged_ = command.acknowledged;
      offered_ = command.offered;
      continue;
    }
    if (command.reason == StopReason::kCancel)
      throw Stopped(StopReason::kCancel, "cancelled on request");
    // SIGTERM follows a pause as a matter of course (jobs.md §4); the first reason stands.
    if (!stop_) stop_ = command.reason;
  }
}

void Controls::stop_here() {
  poll();
  if (stop_) throw Stopped(*stop_, "stopped on request before training began");
}

std::optional<std::string> Controls::take_checkpoint_request() {
  return std::exchange(request_, std::nullopt);
}

}  // namespace dex::train
