// The second half of an attempt whose gates ask for tasks: the evaluator measures base and new
// adapter, and what it finds joins the trainer's result before anything is published.
#include <spdlog/spdlog.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/gates.h"
#include "services/base/files.h"
#include "services/rpc/times.h"
#include "worker/agent/attempt.h"
#include "worker/agent/gate_checkpoint.h"
#include "worker/agent/gate_stage.h"

namespace dex::agent {

namespace {

constexpr const char* kGatesFolder = "gates";  // the evaluator's own attempt directory
// Ends without a report in one attempt after which gates are not measured. The kernel's choice of
// what to end for want of memory looks like any other crash, and costs no training either.
constexpr int kMostCrashes = 2;

// Something that the job is not to blame for, and that may be gone at the next try.
Verdict try_again(const base::Status& status) {
  if (status.reason() == "STORAGE_FULL") return cannot_start(status);
  Verdict verdict;
  verdict.outcome = iv1::OUTCOME_FAIL_RETRY;
  verdict.code = "internal";
  verdict.message = status.message();
  return verdict;
}

bool is_damage(const base::Status& status) {
  return status.reason() == "ARTIFACT_CORRUPT" || status.reason() == "FILE_MISSING";
}

std::string crash_text(const base::ExitStatus& last) {
  return "the evaluator ended twice without a report, the last time with " + last.to_string() +
         (last.signal == SIGKILL ? ", as of a machine with too little memory" : "");
}

}  // namespace

std::optional<Verdict> Attempt::go_on_with_gates(const std::filesystem::path& attempt_dir,
                                                 int lock_fd) {
  log_.set_checkpoint(job_.checkpoint());
  if (const auto made = base::make_directories(attempt_dir); !made.ok()) return cannot_start(made);
  auto kept = take_up_trained(job_.checkpoint(), attempt_dir, paths_);
  if (!kept.ok() && is_damage(kept.status())) {
    spdlog::error("job {} attempt {}: trains again, since what was trained is damaged: {}",
                  job_id(), job_.attempt(), kept.status().to_string());
    return std::nullopt;
  }
  if (!kept.ok()) return try_again(kept.status());
  spdlog::info("job {} attempt {}: its training is done, its gates are not", job_id(),
               job_.attempt());
  log_.set_progress(dex::v1::JOB_PHASE_EVALUATING, kept->progress());
  result_ = kept->result();
  trained_ = std::move(kept).value();
  return measure_gates(attempt_dir, lock_fd);
}

Verdict Attempt::measure_gates(const std::filesystem::path& attempt_dir, int lock_fd) {
  offer_trained();
  for (int crashes = 0;;) {
    if (order_ != Order::kNone) {  // it came while the process before was ending
      AttemptEnd end;
      end.order = order_;
      result_.reset();
      return judge(end);
    }
    const auto end = run_gate_evaluator(attempt_dir, lock_fd);
    if (!end.ok()) {
      result_.reset();
      return cannot_start(end.status());
    }
    const Verdict verdict = judge(*end);
    if (verdict.outcome != iv1::OUTCOME_CRASH) return judge_gates(*end);
    ++crashes;
    spdlog::warn("job {}: crash {} of its gates' evaluator: {}", job_id(), crashes,
                 verdict.message);
    if (crashes == kMostCrashes)
      return conclude_gates(unmeasured_task_gates(job_, crash_text(end->exit)));
  }
}

base::Result<AttemptEnd> Attempt::run_gate_evaluator(const std::filesystem::path& attempt_dir,
                                                     int lock_fd) {
  const auto folder = attempt_dir / kGatesFolder;
  DEX_ASSIGN_OR_RETURN(auto start, gate_evaluator_start(job_, *trained_, models_, paths_));
  DEX_RETURN_IF_ERROR(base::make_directories(folder));
  start.set_attempt_dir(folder.string());
  start.set_threads(options_.threads);
  iv1::TrainerCommand first;
  *first.mutable_evaluate() = std::move(start);
  return execute(first, attempt_dir, lock_fd);
}

void Attempt::offer_trained() {
  const auto attempt_dir = paths_.absolute(job_.attempt_dir());
  if (!attempt_dir.ok()) return;  // run() has seen it
  const auto checkpoint = keep_trained(*attempt_dir, *trained_, paths_);
  if (checkpoint.ok()) {
    log_.set_checkpoint(*checkpoint);
    return;
  }
  metrics_.checkpoint_failures.Increment();
  spdlog::warn("job {}: that its training is done could not be kept: {}", job_id(),
               checkpoint.status().to_string());
}

// The training's figures stay; the phase, and the time that is left, are the evaluator's.
void Attempt::take_gate_progress(const iv1::TrainerReport::TrainerProgress& progress) {
  auto figures = trained_->progress();
  figures.set_estimated_remaining_seconds(progress.progress().estimated_remaining_seconds());
  *figures.mutable_last_updated_time() = rpc::timestamp(clock_.now_ms());
  log_.set_progress(progress.phase(), figures);
}

Verdict Attempt::judge_gates(const AttemptEnd& end) {
  const Verdict verdict = judge(end);
  if (verdict.outcome == iv1::OUTCOME_SUCCESS) {
    const auto report = read_gate_report(end.result->result(), tasks_with_others(job_), paths_);
    if (!report.ok()) {
      result_.reset();
      return try_again(report.status());
    }
    return conclude_gates(judge_task_gates(job_, *report));
  }
  // Of its files or its size: no other try would end otherwise.
  if (verdict.outcome == iv1::OUTCOME_FAIL_FINAL || verdict.outcome == iv1::OUTCOME_OOM)
    return conclude_gates(unmeasured_task_gates(job_, verdict.message));
  result_.reset();
  return verdict;
}

Verdict Attempt::conclude_gates(const std::vector<dex::v1::GateResult>& results) {
  for (const auto& result : results) tell_gate(result);
  add_gate_results(job_, results, *result_);
  Verdict verdict;
  verdict.outcome = iv1::OUTCOME_SUCCESS;
  if (const std::string failed = failed_gates(results); !failed.empty()) {
    verdict.outcome = iv1::OUTCOME_FAIL_FINAL;
    verdict.code = "gate_failed";
    verdict.message = failed + ". Nothing is published";
    verdict.param = "gates";
    result_.reset();
  }
  spdlog::info("job {} epoch {}: gates measured, {}", job_id(), epoch(),
               iv1::Outcome_Name(verdict.outcome));
  return verdict;
}

void Attempt::tell_gate(const dex::v1::GateResult& result) {
  auto told = event(
      "gate_result",
      result.passed() ? dex::v1::FineTuningEvent::LEVEL_INFO : dex::v1::FineTuningEvent::LEVEL_WARN,
      proto::gate_sentence(result));
  *told.mutable_gate_result() = result;
  log_.add_event(std::move(told));
}

}  // namespace dex::agent
