#pragma once

#include <optional>
#include <string>

#include "worker/train/report.h"

namespace dex::train {

// What the session asked for and is not done yet. A cancel ends the job where it stands; pause and
// drain wait for the next step boundary, where a checkpoint is written first. One thread.
class Controls {
 public:
  explicit Controls(Session& session) : session_(session) {}  // outlives this object

  // Takes all waiting commands. Throws Stopped on cancel.
  void poll();
  // For phases without anything to save: throws Stopped on any stop.
  void stop_here();

  const std::optional<StopReason>& stop() const { return stop_; }
  // The request of a checkpoint that was asked for, once.
  std::optional<std::string> take_checkpoint_request();
  // Folders of checkpoints that must stay, as last heard; empty: none.
  const std::string& acknowledged() const { return acknowledged_; }
  const std::string& offered() const { return offered_; }

 private:
  Session& session_;
  std::optional<StopReason> stop_;
  std::optional<std::string> request_;
  std::string acknowledged_, offered_;
};

}  // namespace dex::train
