#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/evaluate/branch_effect_report.h"
#include "worker/train/failure.h"
#include "worker/train/gates.h"

namespace dex::train {

enum class Phase {
  kLoadingModel,
  kLoadingDataset,
  kValidating,
  kSelectingHeads,
  kTraining,
  kEvaluating,
  kSavingCheckpoint,
  kExporting,
  kVerifying,
  kFinalizing,
};
const char* name(Phase phase);  // "LOADING_MODEL"

// The latest figures of a job (api.md §3); what is not known yet is empty.
struct Progress {
  int64_t step = 0, total_steps = 0;
  double epoch = 0;
  int64_t trained_tokens = 0;
  std::optional<double> train_loss, valid_loss, grad_norm, learning_rate, lambda_mean, branch_ratio;
  double tokens_per_second = 0, estimated_remaining_seconds = 0, step_seconds = 0;
  int64_t nonfinite_steps = 0, host_memory_bytes = 0;
};

// An event of api.md §4. `data` is the JSON object of the protobuf message that belongs to `type`
// (events.proto), whose field in FineTuningEvent has the type's name; empty: no data.
struct Event {
  enum class Level { kInfo, kWarn, kError };
  Level level = Level::kInfo;
  std::string type, message, data;
};

struct CheckpointReport {
  std::string request;  // of the command that asked for it; empty: by schedule
  std::string path, manifest_sha256;
  int64_t step = 0, bytes = 0;
  double seconds = 0;
  std::string error;  // empty: written and read back
};

// What a finished job leaves.
struct Published {
  std::string path, manifest_sha256;  // final/ and the hash of its checksums.json
  int64_t bytes = 0;
  int64_t trained_tokens = 0, trained_parameters = 0, added_parameters = 0,
          peak_host_memory_bytes = 0;
  std::optional<double> base_valid_loss, valid_loss, best_valid_loss;
  std::optional<int64_t> best_step;  // whose evaluation gave best_valid_loss
  int64_t served_step = 0;
  bool early_stopped = false;
  double tokens_per_second = 0;
  evaluate::BranchEffect branch_effect;
  std::optional<double> base_kl;         // KL to the base on the probe set, where the job has one
  std::optional<double> gradient_range;  // method.md §4.6; none: not all updates are known
  std::vector<GateResult> gate_results;
  bool promotable = true;     // no gate with BLOCK_ALIAS failed, and the branch is not INERT
  std::string start_adapter;  // gone on from; empty: the base
  std::string base_model, base_weights_sha256, tokenizer_sha256, chat_template_sha256;
  std::string method, form, projection, train, artifact_class;
};

enum class StopReason { kCancel, kPause, kDrain };

// Thrown where an attempt ends because it was asked to.
class Stopped : public Failure {
 public:
  Stopped(StopReason reason, const std::string& message)
      : Failure(Exit::kStopped, "", message), reason_(reason) {}
  StopReason reason() const { return reason_; }

 private:
  StopReason reason_;
};

struct Ending {
  Exit exit = Exit::kSuccess;
  std::optional<StopReason> stopped;  // with Exit::kStopped
  std::string code, message, param;
  std::optional<Published> published;  // with Exit::kSuccess
};

struct Command {
  enum class Kind { kNone, kCheckpoint, kStop, kAcknowledged };
  Kind kind = Kind::kNone;
  std::string request;  // kCheckpoint
  StopReason reason = StopReason::kDrain;
  // kAcknowledged: checkpoints that the job points to, or may point to; empty: none (frames.proto)
  std::string acknowledged, offered;
};

// The trainer's only connection to the world: whoever started it. Called from the training thread
// at step and micro-batch boundaries.
class Session {
 public:
  virtual ~Session() = default;
  virtual void progress(Phase phase, const Progress& progress) = 0;  // never blocks
  virtual void event(const Event& event) = 0;
  virtual void checkpoint(const CheckpointReport& report) = 0;
  virtual void end(const Ending& ending) = 0;  // once, the last call
  // The next command, without waiting. Throws Stopped when whoever started the trainer is gone.
  virtual Command poll() = 0;
};

}  // namespace dex::train
