#include "worker/agent/trainer_process.h"

#include <spdlog/spdlog.h>

namespace dex::agent {

namespace {
constexpr int64_t kWrite_ms = 5'000;
}

TrainerProcess::TrainerProcess(std::unique_ptr<base::Subprocess> process,
                               std::unique_ptr<base::FrameChannel> channel)
    : process_(std::move(process)), channel_(std::move(channel)) {}

base::Result<std::unique_ptr<TrainerProcess>> TrainerProcess::start(
    const Options& options, const iv1::TrainerCommand& first) {
  DEX_ASSIGN_OR_RETURN(auto pair, base::FrameChannel::pair());
  auto& [channel, child_end] = pair;
  base::Subprocess::Options child;
  child.program = options.program;
  child.args = options.args;
  child.args.insert(child.args.end(), {"--frames-fd", "3"});
  child.inherit = {child_end.get()};
  if (options.lock_fd >= 0) child.inherit.push_back(options.lock_fd);
  child.stdout_file = options.log_file;
  child.stderr_file = options.log_file;
  child.niceness = options.niceness;
  DEX_ASSIGN_OR_RETURN(auto process, base::Subprocess::start(child));
  child_end.reset();  // only the child holds it now: its end is our end of file

  // A child that already died shows in read() and in its exit status.
  (void)channel->write(first.SerializeAsString(), kWrite_ms).ok();
  return std::unique_ptr<TrainerProcess>(
      new TrainerProcess(std::move(process), std::move(channel)));
}

base::Result<iv1::TrainerReport> TrainerProcess::read(int64_t timeout_ms) {
  DEX_ASSIGN_OR_RETURN(const auto frame, channel_->read(timeout_ms));
  iv1::TrainerReport report;
  if (!report.ParseFromString(frame) || report.report_case() == report.REPORT_NOT_SET) {
    return base::Status(base::Code::kDataLoss, "MALFORMED_FRAME",
                        "frame of " + std::to_string(frame.size()) + " bytes is no trainer report");
  }
  return report;
}

void TrainerProcess::send(const iv1::TrainerCommand& command) {
  const auto sent = channel_->write(command.SerializeAsString(), kWrite_ms);
  if (!sent.ok()) spdlog::warn("trainer {}: {}", process_->pid(), sent.to_string());
}

}  // namespace dex::agent
