#include "worker/agent/outcome.h"

#include <algorithm>

#include "worker/agent/evaluator_start.h"

namespace dex::agent {

namespace {

Verdict verdict(iv1::Outcome outcome, std::string code, std::string message) {
  Verdict result;
  result.outcome = outcome;
  result.code = std::move(code);
  result.message = std::move(message);
  return result;
}

// A stop that we ordered and that left no result of its own: the last offered checkpoint stands.
Verdict stopped(Order order, const std::string& how) {
  switch (order) {
    case Order::kCancel:
      return verdict(iv1::OUTCOME_CANCELLED, "", "");
    case Order::kPause:
      return verdict(iv1::OUTCOME_PAUSED, "", "");
    case Order::kDrain:
    case Order::kNone:
    case Order::kLost:
      return verdict(iv1::OUTCOME_RELEASE, "", "trainer stopped: " + how);
  }
  return verdict(iv1::OUTCOME_RELEASE, "", "trainer stopped: " + how);
}

Verdict by_frame(const iv1::TrainerReport::TrainerResult& result) {
  if (result.outcome() == iv1::OUTCOME_SUCCESS && !result.has_result()) {
    return verdict(iv1::OUTCOME_CRASH, "internal", "trainer reported success without a result");
  }
  Verdict verdict;
  verdict.outcome = result.outcome();
  verdict.code = result.code();
  verdict.message = result.message();
  verdict.param = result.param();
  if (result.has_out_of_memory()) verdict.out_of_memory = result.out_of_memory();
  return verdict;
}

Verdict by_exit(const base::ExitStatus& exit, const SupervisedProcess& process) {
  const std::string name = name_of(process);
  const std::string how = (name.empty() ? "trainer" : name) + " ended with " + exit.to_string();
  if (exit.signal != 0) return verdict(iv1::OUTCOME_CRASH, "internal", how);
  switch (exit.code) {
    case kExitBadConfig:
      return verdict(iv1::OUTCOME_FAIL_FINAL, "invalid_hyperparameter", how);
    case kExitBadData:
      return verdict(iv1::OUTCOME_FAIL_FINAL, "invalid_training_file", how);
    case kExitNonFinite:
      return verdict(iv1::OUTCOME_FAIL_FINAL, "non_finite_loss", how);
    case kExitOutOfMemory:
      return verdict(iv1::OUTCOME_OOM, "out_of_memory", how);
    case kExitDiskFull:
      return verdict(iv1::OUTCOME_DISK_FULL, "disk_full", how);
    case kExitQuota:
      return verdict(iv1::OUTCOME_FAIL_FINAL, "quota_exceeded", how);
    case kExitBadBase:
      return verdict(iv1::OUTCOME_RELEASE, "internal", how);
    case kExitRetryable:
    case kExitBrokenCheckpoint:
      return verdict(iv1::OUTCOME_FAIL_RETRY, "internal", how);
    case kExitGuard:
      return verdict(iv1::OUTCOME_FAIL_FINAL, "gate_failed", how);
    default:
      return verdict(iv1::OUTCOME_CRASH, "internal", how + " and no result");
  }
}

Verdict by_rank(const RankEnd& end) {
  Verdict result = end.result && end.result->outcome() != iv1::OUTCOME_UNSPECIFIED
                       ? by_frame(*end.result)
                       : by_exit(end.exit, {});
  result.message = "rank " + std::to_string(end.rank) + ": " + result.message;
  return result;
}

// Rank 0 has no end of its own: it lost the other, or was killed because that one ended. One that
// died without a word has: then the others lost it.
bool ended_for_another(const AttemptEnd& end) {
  if (!end.lost_rank || end.order != Order::kNone || end.stalled) return false;
  return end.result ? end.result->code() == kRankLost : !lost_another(*end.lost_rank);
}

// "dex-trainer (process 4711 on worker w1) did nothing new for 600 s after step 12 in phase
// TRAINING; it was sleeping and was killed"
std::string stall_text(const AttemptEnd& end) {
  const std::string name = name_of(end.process);
  std::string text = (name.empty() ? "trainer" : name) + " did nothing new for " +
                     std::to_string(end.silent_ms / 1000) + " s";
  if (!end.last_heard.empty()) text += " after " + end.last_heard;
  if (!end.activity.empty()) text += "; it was " + end.activity;
  return text + " and was killed";
}

// Of the attempt that ended; 0: nobody knows.
uint32_t micro_batch_of(const Verdict& verdict, const iv1::ClaimedJob& job) {
  if (verdict.out_of_memory) return verdict.out_of_memory->micro_batch_size();
  const auto& hyper = job.spec().hyperparameters();
  if (!hyper.has_micro_batch_size() || !hyper.has_batch_size()) return 0;
  const uint32_t first = std::min(hyper.micro_batch_size(), hyper.batch_size());
  return std::max(1u, first >> std::min(job.oom_retries(), 31u));
}

}  // namespace

bool lost_another(const RankEnd& end) {
  return end.result && end.result->code() == kRankLost;
}

Verdict judge(const AttemptEnd& end) {
  Verdict result;
  if (end.order == Order::kLost) {
    result.report = false;
    return result;
  }
  const bool refused = end.exit.signal == 0 && end.exit.code == kExitBrokenCheckpoint;
  const bool has_frame = end.result && end.result->outcome() != iv1::OUTCOME_UNSPECIFIED;
  if (refused && end.order != Order::kNone) {
    // There is no time to try another checkpoint, and that is not the job's failure.
    result = stopped(end.order, end.exit.to_string());
  } else if (ended_for_another(end)) {
    result = by_rank(*end.lost_rank);
  } else if (has_frame) {
    result = by_frame(*end.result);
  } else if (end.stalled) {
    result = verdict(iv1::OUTCOME_FAIL_RETRY, "stalled", stall_text(end));
  } else if (end.order != Order::kNone) {
    result = stopped(end.order, end.exit.to_string());
  } else if (!end.broken_channel.empty()) {
    result = verdict(iv1::OUTCOME_CRASH, "internal",
                     "trainer was given up: " + end.broken_channel + "; " + end.exit.to_string());
  } else if (end.exit.signal == 0 && end.exit.code == kExitStopped) {
    result = stopped(end.order, end.exit.to_string());  // SIGTERM from somebody else: an eviction
  } else {
    result = by_exit(end.exit, end.process);
  }
  // A trainer that stopped for a reason of its own words it as release, paused or cancelled. Only
  // what was ordered may be reported: the scheduler refuses `cancelled` while the job is RUNNING.
  if (result.outcome == iv1::OUTCOME_CANCELLED && end.order != Order::kCancel) {
    result.outcome = iv1::OUTCOME_RELEASE;
  }
  if (result.code == kRankLost) result.code = "internal";  // which one, nobody saw
  result.out_of_service = end.exit.signal == 0 && end.exit.code == kExitBadBase;
  return result;
}

Verdict judge_training(const AttemptEnd& end, const iv1::ClaimedJob& job) {
  Verdict result = judge(end);
  // A pause that nobody ordered would put the job back into the queue, and no counter would end it.
  if (result.outcome == iv1::OUTCOME_PAUSED && end.order != Order::kPause && !job.hold())
    result.outcome = iv1::OUTCOME_RELEASE;
  if (result.outcome != iv1::OUTCOME_OOM || job.kind() == kEvaluation) return result;
  if (job.kind() != kProbe && micro_batch_of(result, job) != 1) return result;
  result.outcome = iv1::OUTCOME_FAIL_FINAL;
  result.code = "out_of_memory";
  return result;
}

bool found_checkpoint_broken(const AttemptEnd& end) {
  return end.order == Order::kNone && end.exit.signal == 0 &&
         end.exit.code == kExitBrokenCheckpoint;
}

Verdict cannot_start(const base::Status& status) {
  Verdict result;
  result.message = status.message();
  if (status.reason() == "STORAGE_FULL") {
    result.outcome = iv1::OUTCOME_DISK_FULL;
    result.code = "disk_full";
    return result;
  }
  // Nothing of this is the job's fault: another worker may have what is missing here.
  result.outcome = iv1::OUTCOME_RELEASE;
  result.code = "internal";
  // Lacking a model says nothing of the other jobs that this slot can run.
  result.lacking = status.reason() == "MODEL_NOT_FOUND";
  result.out_of_service = !result.lacking;
  return result;
}

}  // namespace dex::agent
