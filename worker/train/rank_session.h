#pragma once

#include "worker/train/report.h"

namespace dex::train {

// What a rank other than 0 says: how it ended, and nothing else. What the job shows, its events,
// checkpoints and figures, are rank 0's. Orders are rank 0's too: a stop (SIGTERM often reaches all
// processes) is followed there, and here comes the end that it makes. One thread.
class RankSession final : public Session {
 public:
  explicit RankSession(Session& session) : session_(session) {}  // outlives this object

  void progress(Phase, const Progress&) override {}
  void event(const Event&) override {}
  void checkpoint(const CheckpointReport&) override {}
  void end(const Ending& ending) override { session_.end(ending); }
  // Throws Stopped when whoever started the trainer is gone.
  Command poll() override {
    while (session_.poll().kind != Command::Kind::kNone) {
    }
    return {};
  }

 private:
  Session& session_;
};

}  // namespace dex::train
