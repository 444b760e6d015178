#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dex/internal/v1/worker.pb.h"
#include "services/base/clock.h"
#include "worker/agent/attempt_log.h"
#include "worker/agent/data_paths.h"
#include "worker/agent/metrics.h"
#include "worker/agent/model_list.h"
#include "worker/agent/outcome.h"
#include "worker/agent/rank_processes.h"
#include "worker/agent/stall_clock.h"
#include "worker/agent/stop_sequence.h"
#include "worker/agent/trainer_process.h"

namespace dex::agent {

// One execution of a job: starts the trainer (or evaluator), listens to it, stops it when told, and
// says how it ended. Where gates ask for tasks of EvaluationService, the evaluator follows the
// trainer (attempt_gates.cc). A job of a kind that this agent does not know is given back. run()
// belongs to one thread; orders and log() may come from any.
class Attempt {
 public:
  static constexpr int64_t kOrphanLeases = 12;
  struct Options {
    TrainerProcess::Options trainer;
    // Of evaluations, gates, and jobs about one adapter: dex-engine evaluation.
    TrainerProcess::Options evaluator;
    StopSequence::Options stop;
    uint32_t threads = 0;                // 0: all cores; shared by the ranks
    uint32_t ranks = 1;                  // trainers that compute a fine-tuning job together
    int64_t prefix_cache_bytes = 0;      // bound of cache/prefix below the data directory; 0: none
    int64_t first_sign_ms = 1'800'000;   // until the first step: loading may take long
    int64_t default_stall_ms = 600'000;  // when the spec does not say
    int64_t look_ms = 250;               // how often orders and the clock are looked at
    int64_t lease_ms = 30'000;           // the scheduler's, which Slot fills in
    std::string worker_id;               // likewise; for whoever reads how an attempt ended
    // So long without an answer of the scheduler, and the trainer stops with a checkpoint. 0:
    // never; nothing: kOrphanLeases of lease_ms (jobs.md §4).
    std::optional<int64_t> orphan_limit_ms;
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

  // A user waits for a checkpoint. Told to the trainer once, however often it is said here.
  void ask_checkpoint(const std::string& request);

  AttemptLog& log() { return log_; }
  [[nodiscard]] const std::string& job_id() const { return job_.job_id(); }
  [[nodiscard]] const std::string& tenant() const { return job_.tenant(); }
  [[nodiscard]] int64_t epoch() const { return job_.epoch(); }
  // What a successful trainer left, with a path relative to the data directory.
  [[nodiscard]] const std::optional<iv1::AttemptResult>& result() const { return result_; }

 private:
  // The process's first frame, by the job's kind.
  base::Result<iv1::TrainerCommand> first_command(const std::filesystem::path& attempt_dir);
  base::Result<iv1::TrainerStart> trainer_start();
  // Runs the job's process to its end: from its checkpoint, from an earlier one where that is
  // broken, or from the start.
  base::Result<AttemptEnd> execute_job(const std::filesystem::path& attempt_dir, int lock_fd);
  // Starts the process that belongs to the frame and follows it to its end.
  base::Result<AttemptEnd> execute(const iv1::TrainerCommand& first,
                                   const std::filesystem::path& attempt_dir, int lock_fd);
  // What a trainer has been told.
  struct Told {
    AttemptLog::Pointers pointers;
    std::string request;
  };
  // `others`: of a job with several ranks, else null.
  AttemptEnd supervise(TrainerProcess& process, bool is_trainer, RankProcesses* others);
  [[nodiscard]] uint32_t ranks() const;  // of this job
  // Where the process was by its last progress: "step 12 in phase TRAINING",
  // "its start".
  [[nodiscard]] std::string last_heard() const;
  void tell(TrainerProcess& trainer, Told& told);
  // checkpoint_ becomes one from before, or none, and the job's events say so.
  void give_up_checkpoint(const AttemptEnd& end);
  void take(const iv1::TrainerReport& report, AttemptEnd& end);
  void take_progress(const iv1::TrainerReport::TrainerProgress& progress);
  // Counts it; nothing: it failed, or lies at the wrong place.
  std::optional<iv1::CheckpointRef> take_checkpoint(const iv1::TrainerReport::CheckpointDone& done);
  void push(TrainerProcess& trainer, const StopSequence::Due& due);
  [[nodiscard]] StallClock::Options stall_options(bool is_trainer) const;
  // As a trainer would send it, of now.
  [[nodiscard]] dex::v1::FineTuningEvent event(const std::string& type,
                                               dex::v1::FineTuningEvent::Level level,
                                               const std::string& message) const;
  Verdict finish(const AttemptEnd& end);

  // The half after the training; trained_ is what it left, and result_ its result.
  // An evaluator that crashes is started again behind the tasks that are measured, once.
  Verdict measure_gates(const std::filesystem::path& attempt_dir, int lock_fd);
  // The same in an attempt that finds the training done; nothing: what it finds is damaged.
  std::optional<Verdict> go_on_with_gates(const std::filesystem::path& attempt_dir, int lock_fd);
  base::Result<AttemptEnd> run_gate_evaluator(const std::filesystem::path& attempt_dir,
                                              int lock_fd);
  // Points the job to what is done; an attempt that could not do so only has more to do again.
  void offer_trained();
  void take_gate_progress(const iv1::TrainerReport::TrainerProgress& progress);
  Verdict judge_gates(const AttemptEnd& end);  // of an end that is no crash
  Verdict conclude_gates(const std::vector<dex::v1::GateResult>& results);
  void tell_gate(const dex::v1::GateResult& result);

  const iv1::ClaimedJob job_;
  const Options options_;
  const int64_t orphan_limit_ms_;  // 0: never
  const DataPaths& paths_;
  const std::vector<BaseModelEntry>& models_;
  const base::Clock& clock_;
  WorkerMetrics& metrics_;
  AttemptLog log_;
  std::atomic<Order> order_ = Order::kNone;
  std::atomic<int64_t> last_answer_ms_;
  std::mutex request_mutex_;
  std::string request_;  // of ask_checkpoint; guarded by request_mutex_

  // Of run()'s thread.
  std::optional<iv1::CheckpointRef> checkpoint_;  // to begin from; none: from the start
  std::optional<iv1::AttemptResult> result_;
  std::optional<iv1::TrainedState> trained_;  // since the training is done and gates are measured
  uint32_t last_step_ = 0;
  int64_t counted_tokens_ = -1;
  uint32_t counted_nonfinite_ = 0;
};

}  // namespace dex::agent
