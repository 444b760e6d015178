#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/frame_channel.h"
#include "services/base/status.h"
#include "services/base/subprocess.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// A running dex-trainer, or what else runs a job and speaks its frames. One thread, the one that
// starts it, uses it: the child dies with that thread.
class TrainerProcess {
 public:
  struct Options {
    std::string program = "dex-trainer";
    std::vector<std::string> args;   // before `--frames-fd 3`
    std::filesystem::path log_file;  // its stdout and stderr, appended
    int lock_fd = -1;                // inherited too: the slot stays locked as long as it lives
    int niceness = 0;
  };

  // Starts the program with `--frames-fd 3` and sends the first frame.
  static base::Result<std::unique_ptr<TrainerProcess>> start(const Options& options,
                                                             const iv1::TrainerCommand& first);

  // The next report; failures are those of FrameChannel::read, and MALFORMED_FRAME for bytes that
  // are no report.
  base::Result<iv1::TrainerReport> read(int64_t timeout_ms);
  // Best effort: a trainer that does not read is stopped by signals.
  void send(const iv1::TrainerCommand& command);

  base::Subprocess& process() { return *process_; }

 private:
  TrainerProcess(std::unique_ptr<base::Subprocess> process,
                 std::unique_ptr<base::FrameChannel> channel);

  std::unique_ptr<base::Subprocess> process_;
  std::unique_ptr<base::FrameChannel> channel_;
};

}  // namespace dex::agent
