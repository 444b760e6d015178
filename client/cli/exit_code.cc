#include "client/cli/exit_code.h"

#include <algorithm>
#include <set>

namespace dex::cli {

namespace {

int exit_code_of(v1::JobState state, const v1::JobError& error) {
  switch (state) {
    case v1::JOB_STATE_FAILED:
      if (error.category() == "USER") return kUserFault;
      return error.category() == "CAPACITY" ? kCapacity : kSystemFault;
    case v1::JOB_STATE_CANCELLED:
    case v1::JOB_STATE_EXPIRED:
      return kJobStopped;
    default:
      return kDone;
  }
}

}  // namespace

int exit_code(const base::Status& status) {
  if (status.ok()) return kDone;
  // ErrorInfo says who acts; a status without it is judged by its code.
  for (const auto& [key, value] : status.metadata()) {
    if (key != "category") continue;
    if (status.code() == base::Code::kCancelled) break;
    if (value == "USER") return kUserFault;
    return value == "CAPACITY" ? kCapacity : kSystemFault;
  }
  switch (status.code()) {
    case base::Code::kCancelled:
      return kInterrupted;
    case base::Code::kInvalidArgument:
    case base::Code::kNotFound:
    case base::Code::kAlreadyExists:
    case base::Code::kPermissionDenied:
    case base::Code::kFailedPrecondition:
    case base::Code::kOutOfRange:
    case base::Code::kUnimplemented:
    case base::Code::kUnauthenticated:
      return kUserFault;
    case base::Code::kResourceExhausted:
      return kCapacity;
    default:
      return kSystemFault;
  }
}

int exit_code(const v1::FineTuningJob& job) {
  // A job that failed its gate, or succeeded without passing one that it must pass to be promoted.
  if (job.error().code() == "gate_failed") return kNotPassed;
  for (const auto& result : job.gate_results()) {
    if (!result.passed() && result.on_fail() == "BLOCK_ALIAS") return kNotPassed;
  }
  return exit_code_of(job.state(), job.error());
}

int exit_code(const v1::Evaluation& evaluation) {
  return exit_code_of(evaluation.state(), evaluation.error());
}

int exit_code(const v1::CompareEvaluationsResponse& comparison) {
  std::set<uint32_t> with_a_whole;  // tasks that have a row over everything
  for (const auto& row : comparison.differences()) {
    if (row.dims().empty()) with_a_whole.insert(row.task_a());
  }
  for (const auto& row : comparison.differences()) {
    const bool counts = row.dims().empty() || !with_a_whole.contains(row.task_a());
    if (counts && row.verdict() == v1::EvaluationRow::VERDICT_WORSE) return kNotPassed;
  }
  return kDone;
}

}  // namespace dex::cli
