#pragma once

#include <stdexcept>
#include <string>

namespace dex::train {

// How an attempt ends (jobs.md §6). The value is the exit code of dex-trainer.
enum class Exit : int {
  kSuccess = 0,
  kUsage = 2,
  kBadSpec = 10,           // invalid_hyperparameter
  kBadData = 11,           // invalid_training_file
  kNonFinite = 12,         // non_finite_loss, loss_diverged
  kOutOfMemory = 13,       // out_of_memory
  kDiskFull = 14,          // disk_full
  kQuota = 15,             // quota_exceeded
  kStopped = 16,           // drained, paused or cancelled on request
  kBrokenInput = 17,       // base weights are not what they should be: this machine's fault
  kRetryable = 18,         // store or machine trouble
  kGuard = 19,             // base_guard_tripped, gate_failed
  kBrokenCheckpoint = 20,  // nobody's: whoever started the trainer names another one, or none
  kInternal = 70,          // a fault of ours
};

// The one exception that knows how the attempt ends; everything else is an internal fault.
class Failure : public std::runtime_error {
 public:
  // `code` as in api.md §3 (error), `param` the field or file at fault, or empty.
  Failure(Exit exit, std::string code, const std::string& message, std::string param = "")
      : std::runtime_error(message),
        exit_(exit),
        code_(std::move(code)),
        param_(std::move(param)) {}

  Exit exit() const { return exit_; }
  const std::string& code() const { return code_; }
  const std::string& param() const { return param_; }

 private:
  Exit exit_;
  std::string code_, param_;
};

// Code of a rank that ended because another did (process_group.h): never why a job ended, so the
// agent looks for the other's end.
inline constexpr const char* kRankLost = "rank_lost";

inline Failure bad_spec(const std::string& param, const std::string& message) {
  return {Exit::kBadSpec, "invalid_hyperparameter", param + ": " + message, param};
}

}  // namespace dex::train
