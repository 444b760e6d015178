#pragma once

#include <cstdint>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "services/base/clock.h"
#include "worker/evaluate/task.h"
#include "worker/serve/evaluate_command.h"
#include "worker/serve/evaluation_subjects.h"

// An evaluation as a job: several tasks on the same subjects, one after the other. No protobuf and
// no tensor here; frames are evaluation_frames.h.
namespace dex::serve {

struct EvaluationJob {
  EvaluationSubjects::Options subjects;
  std::vector<EvaluateCommand> tasks;    // of each: task, file, seed, options
  std::vector<std::string> task_fields;  // "tasks[0].perplexity", for refusals
  // What a message calls a path: users know their files by other names.
  std::vector<std::pair<std::string, std::string>> shown_paths;
  double confidence = 0.95;
  uint64_t seed = 0;
};

// Why an evaluation can't be done, in words of api.md §3.
class EvaluationFailure : public std::runtime_error {
 public:
  enum class Kind {
    kFile,     // invalid_evaluation_file: the user's
    kTask,     // invalid_hyperparameter: the user's
    kAdapter,  // adapter_mismatch
    kBase,     // this worker's copy of the base model: another may do
    kMemory,   // out_of_memory: this worker's is too small for the models
    kEngine,   // ours
  };
  EvaluationFailure(Kind kind, const std::string& message, std::string param)
      : std::runtime_error(message), kind_(kind), param_(std::move(param)) {}
  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] const std::string& param() const { return param_; }

 private:
  Kind kind_;
  std::string param_;
};

enum class EvaluationPhase { kLoadingDataset, kLoadingModel, kEvaluating };

// Who follows a run. Called in the thread that runs it.
class EvaluationSession {
 public:
  virtual ~EvaluationSession() = default;
  // `done` tasks are ready and `ratio` (0–1) of everything; neither ever gets less. Comes where the
  // run gets further and, as long as the engine takes its steps, about once a second: whoever waits
  // for a sign of life (jobs.md §4) gets one from the computation itself. Must not throw.
  virtual void progress(EvaluationPhase phase, size_t done, double ratio) = 0;
  // A sample of the task that runs, subject by subject.
  virtual void sample(const evaluate::Sample& /*sample*/) {}
  // The next task is ready; keeps it, so that a later attempt need not compute it again.
  virtual void finished(size_t task, const evaluate::Evaluation& evaluation) = 0;
  [[nodiscard]] virtual std::stop_token stop() const = 0;
};

// Reads the files of all tasks from the `first` on, loads base and adapters, runs these tasks.
// Every number is a function of job, files and weights, so it is the same whatever `first` was.
// `clock` says when a second has passed. Throws EvaluationFailure, evaluate::Stopped.
void run_evaluation_job(const EvaluationJob& job, size_t first, EvaluationSession& session,
                        const base::Clock& clock);

}  // namespace dex::serve
