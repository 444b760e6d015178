#pragma once

#include <memory>
#include <string>

#include "services/base/clock.h"
#include "services/base/frame_channel.h"
#include "services/base/signals.h"
#include "worker/train/report.h"

namespace dex::train {

// The session under an agent: frames of frames.proto over a socket pair (jobs.md §4). Progress
// never blocks, a newer one replaces one that waits; everything else waits at most ten seconds for
// the agent. SIGTERM counts as a drain. One thread uses it.
class FrameSession final : public Session {
 public:
  // All three outlive this object.
  FrameSession(base::FrameChannel& channel, const base::StopSignals& signals,
               const base::Clock& clock);

  // Waits for the Start frame and returns its message in wire form (parse_spec_bytes reads it).
  // Throws Failure if another frame comes first, the agent goes away or nothing comes within
  // timeout_ms.
  std::string await_start(int64_t timeout_ms);
  void ready(const std::string& device);
  void set_attempt(int32_t attempt) { attempt_ = attempt; }

  void progress(Phase phase, const Progress& progress) override;
  void event(const Event& event) override;
  void checkpoint(const CheckpointReport& report) override;
  void end(const Ending& ending) override;
  Command poll() override;

 private:
  void send(const std::string& frame);

  base::FrameChannel& channel_;
  const base::StopSignals& signals_;
  const base::Clock& clock_;
  int32_t attempt_ = 1;
  bool drain_told_ = false;
};

}  // namespace dex::train
