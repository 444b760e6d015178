#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/status.h"
#include "worker/agent/outcome.h"
#include "worker/agent/trainer_process.h"

namespace dex::agent {

// The trainers of a job's ranks beside rank 0. They say nothing but how they end, and are told
// nothing: rank 0 leads them. One thread, the one that starts them.
class RankProcesses {
 public:
  // Where the ranks of one attempt meet; a file, which is to be removed before each start.
  static std::filesystem::path meeting_file(const std::filesystem::path& attempt_dir);

  // As rank 0 is started (its `options` and first frame), each with its own rank and log file
  // (trainer.rank1.log). One that can't be started takes those before it along.
  static base::Result<std::unique_ptr<RankProcesses>> start(const TrainerProcess::Options& options,
                                                            const iv1::TrainerCommand& first);

  // Without waiting: a rank that ended before its time. Of several, one that did not only lose
  // another (kRankLost): why all of them end.
  std::optional<RankEnd> lost();
  // The same once rank 0 has lost another: its end may come a moment after that of its connections.
  // Waits at most so long for one that did not lose another itself.
  std::optional<RankEnd> cause(int64_t timeout_ms);
  // Kills what still runs, and waits until nothing of it does. Also when destroyed.
  void stop();

 private:
  struct Rank {
    std::unique_ptr<TrainerProcess> process;
    RankEnd end;
    bool over = false;
  };
  void look(Rank& rank);

  std::vector<Rank> ranks_;
};

}  // namespace dex::agent
