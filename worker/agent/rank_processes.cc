#include "worker/agent/rank_processes.h"

#include <poll.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <csignal>
#include <string>
#include <utility>

namespace dex::agent {

std::filesystem::path RankProcesses::meeting_file(const std::filesystem::path& attempt_dir) {
  return attempt_dir / "ranks.meeting";
}

base::Result<std::unique_ptr<RankProcesses>> RankProcesses::start(
    const TrainerProcess::Options& options, const iv1::TrainerCommand& first) {
  auto out = std::make_unique<RankProcesses>();
  for (uint32_t number = 1; number < first.start().ranks(); ++number) {
    iv1::TrainerCommand command = first;
    command.mutable_start()->set_rank(number);
    TrainerProcess::Options own = options;
    own.log_file.replace_extension("rank" + std::to_string(number) + ".log");
    Rank rank;
    rank.end.rank = number;
    DEX_ASSIGN_OR_RETURN(rank.process, TrainerProcess::start(own, command));
    spdlog::info("job {}: rank {} is trainer {}", first.start().job_id(), number,
                 rank.process->process().pid());
    out->ranks_.push_back(std::move(rank));
  }
  return out;
}

// The exit is looked for first: what the rank had said by then is all it says.
void RankProcesses::look(Rank& rank) {
  const auto exit = rank.process->process().wait(0);
  while (true) {
    auto report = rank.process->read(0);
    if (!report.ok()) break;
    if (report->has_result()) rank.end.result = report->result();
  }
  if (!exit) return;
  rank.end.exit = *exit;
  rank.over = true;
}

std::optional<RankEnd> RankProcesses::lost() {
  const Rank* found = nullptr;
  for (Rank& rank : ranks_) {
    if (!rank.over) look(rank);
    // How it exits after that is nobody's loss.
    const bool done = rank.end.result && rank.end.result->outcome() == iv1::OUTCOME_SUCCESS;
    if (!rank.over || rank.end.exit.success() || done) continue;
    if (found == nullptr || lost_another(found->end)) found = &rank;
  }
  return found == nullptr ? std::nullopt : std::optional(found->end);
}

std::optional<RankEnd> RankProcesses::cause(int64_t timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    const auto found = lost();
    std::vector<pollfd> running;
    for (const Rank& rank : ranks_) {
      if (!rank.over) running.push_back({rank.process->process().pidfd(), POLLIN, 0});
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    const bool own = found && !lost_another(*found);
    if (own || running.empty() || left.count() <= 0) return found;
    ::poll(running.data(), running.size(), static_cast<int>(left.count()));
  }
}

void RankProcesses::stop() {
  for (Rank& rank : ranks_) rank.process->process().signal(SIGKILL);
  for (Rank& rank : ranks_) rank.process->process().terminate(0);
  ranks_.clear();
}

}  // namespace dex::agent
