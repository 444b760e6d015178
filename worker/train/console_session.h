#pragma once

#include <ostream>

#include "services/base/clock.h"
#include "services/base/signals.h"
#include "worker/train/report.h"

namespace dex::train {

// The session of dex-trainer alone: events and progress as lines of text, SIGTERM and Ctrl-C as a
// drain.
class ConsoleSession final : public Session {
 public:
  // All three outlive this object.
  ConsoleSession(std::ostream& out, const base::StopSignals& signals, const base::Clock& clock)
      : out_(out), signals_(signals), clock_(clock) {}

  void progress(Phase phase, const Progress& progress) override;
  void event(const Event& event) override;
  void checkpoint(const CheckpointReport& report) override;
  void end(const Ending& ending) override;
  Command poll() override;

 private:
  std::ostream& out_;
  const base::StopSignals& signals_;
  const base::Clock& clock_;
  std::optional<Phase> phase_;
  int64_t printed_ms_ = -1, printed_step_ = -1;
  bool drain_told_ = false;
};

}  // namespace dex::train
