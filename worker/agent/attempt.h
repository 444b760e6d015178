#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "dex/internal/v1/worker.pb.h"
#include "services/base/clock.h"
#include "worker/agent/attempt_log.h"
#include "worker/agent/data_paths.h"
#include "worker/agent/metrics.h"
#include "worker/agent/model_list.h"
#include "worker/agent/outcome.h"
#include "worker/agent/stop_sequence.h"
#include "worker/agent/trainer_process.h"

namespace dex::agent {

// One execution of a job: starts the trainer (or evaluator), listens to it, stops it when told, and
// says how it ended. A job of a kind that this agent does not know is given back. run() belongs to
// one thread; orders and log() may come from any.
class Attempt {
 public:
  struct Options {
    TrainerProcess::Options trainer;
    TrainerProcess::Options evaluator;  // of evaluations: dex-engine evaluation
    StopSequence::Options stop;
    uint32_t threads = 0;                // 0: all cores
    int64_t first_sign_ms = 1'800'000;   // until the first step: loading may take long
    int64_t default_stall_ms = 600'000;  // when the spec does not say
    int64_t orphan_limit_ms = 0;         // without an answer from the scheduler; 0: no limit
    int64_t look_ms = 250;               // how often orders and the clock are looked at
  };

  // paths, models, clock and metrics outlive this object.
  Attempt(iv1::ClaimedJob job, const Options& options, const DataPaths& paths,
          const std::vector<BaseModelEntry>& models, const base::Clock& clock,
          WorkerMetrics& metrics);

  // Blocks until the trainer has ended and nothing of it runs any more. Once. The trainer inherits
  // lock_fd (−1: none), so the slot stays locked as long as it lives.
  Verdict run(int lock_fd);

  // Only a graver order counts.
  void order(Order order);
  [[nodiscard]] Order ordered() const { return order_; }
  // The scheduler answered a beat that was sent at that (steady) time.
  void answered(int64_t sent_ms) { last_answer_ms_ = sent_ms; }

  AttemptLog& log() { return log_; }
  [[nodiscard]] const std::string& job_id() const { return job_.job_id(); }
  [[nodiscard]] int64_t epoch() const { return job_.epoch(); }
  // What a successful trainer left, with a path relative to the data directory.
  [[nodiscard]] const std::optional<iv1::AttemptResult>& result() const { return result_; }

 private:
  // The process's first frame, by the job's kind.
  base::Result<iv1::TrainerCommand> first_command(const std::filesystem::path& attempt_dir);
  base::Result<iv1::TrainerStart> trainer_start();
  AttemptEnd supervise(TrainerProcess& trainer);
  void take(const iv1::TrainerReport& report, AttemptEnd& end);
  void take_progress(const iv1::TrainerReport::TrainerProgress& progress);
  void take_checkpoint(const iv1::TrainerReport::CheckpointDone& done);
  void push(TrainerProcess& trainer, const StopSequence::Due& due);
  [[nodiscard]] bool stalled() const;
  Verdict finish(const AttemptEnd& end);

  const iv1::ClaimedJob job_;
  const Options options_;
  const DataPaths& paths_;
  const std::vector<BaseModelEntry>& models_;
  const base::Clock& clock_;
  WorkerMetrics& metrics_;
  AttemptLog log_;
  std::atomic<Order> order_ = Order::kNone;
  std::atomic<int64_t> last_answer_ms_;

  // Of run()'s thread.
  std::optional<iv1::AttemptResult> result_;
  int64_t last_sign_ms_ = 0;  // any frame: all of them come from the loop that computes
  bool stepped_ = false;
  uint32_t last_step_ = 0;
  int64_t counted_tokens_ = -1;
  uint32_t counted_nonfinite_ = 0;
};

}  // namespace dex::agent
