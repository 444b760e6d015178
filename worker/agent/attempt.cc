#include "worker/agent/attempt.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>

#include "services/base/files.h"
#include "worker/agent/evaluator_start.h"

namespace dex::agent {

namespace {

// ClaimedJob::kind of the trainer's jobs. The second ends once its heads are chosen.
constexpr const char* kFineTuning = "finetune";
constexpr const char* kHeadSelection = "head_selection";

bool is_known(const std::string& kind) {
  return kind.empty() || kind == kFineTuning || kind == kHeadSelection || kind == kEvaluation;
}

Verdict cannot_start(const base::Status& status) {
  Verdict verdict;
  verdict.message = status.message();
  if (status.reason() == "STORAGE_FULL") {
    verdict.outcome = iv1::OUTCOME_DISK_FULL;
    verdict.code = "disk_full";
    return verdict;
  }
  // Nothing of this is the job's fault: another worker may have what is missing here.
  verdict.outcome = iv1::OUTCOME_RELEASE;
  verdict.code = "internal";
  // Lacking a model says nothing of the other jobs that this slot can run.
  verdict.lacking = status.reason() == "MODEL_NOT_FOUND";
  verdict.out_of_service = !verdict.lacking;
  return verdict;
}

iv1::TrainerCommand::Stop::Reason reason_of(Order order) {
  switch (order) {
    case Order::kPause:
      return iv1::TrainerCommand::Stop::REASON_PAUSE;
    case Order::kDrain:
      return iv1::TrainerCommand::Stop::REASON_DRAIN;
    default:
      return iv1::TrainerCommand::Stop::REASON_CANCEL;
  }
}

}  // namespace

Attempt::Attempt(iv1::ClaimedJob job, const Options& options, const DataPaths& paths,
                 const std::vector<BaseModelEntry>& models, const base::Clock& clock,
                 WorkerMetrics& metrics)
    : job_(std::move(job)),
      options_(options),
      paths_(paths),
      models_(models),
      clock_(clock),
      metrics_(metrics),
      log_(job_.job_id(), job_.epoch()),
      last_answer_ms_(clock.steady_ms()) {}

void Attempt::order(Order order) {
  Order now = order_;
  while (order > now && !order_.compare_exchange_weak(now, order)) {
  }
}

Verdict Attempt::run(int lock_fd) {
  if (!is_known(job_.kind())) {
    Verdict verdict;
    verdict.outcome = iv1::OUTCOME_RELEASE;
    verdict.message = "this worker does not know jobs of kind " + job_.kind();
    verdict.lacking = true;
    return verdict;
  }
  const auto attempt_dir = paths_.absolute(job_.attempt_dir());
  if (!attempt_dir.ok()) return cannot_start(attempt_dir.status());
  const auto first = first_command(*attempt_dir);
  if (!first.ok()) return cannot_start(first.status());
  const bool evaluation = first->has_evaluate();
  auto process = evaluation ? options_.evaluator : options_.trainer;
  process.log_file = *attempt_dir / (evaluation ? "evaluator.log" : "trainer.log");
  process.lock_fd = lock_fd;
  auto trainer = TrainerProcess::start(process, *first);
  if (!trainer.ok()) return cannot_start(trainer.status());
  spdlog::info("job {} attempt {} epoch {}: {} {} started", job_id(), job_.attempt(), epoch(),
               evaluation ? "evaluator" : "trainer", (*trainer)->process().pid());
  return finish(supervise(**trainer));
}

base::Result<iv1::TrainerCommand> Attempt::first_command(const std::filesystem::path& attempt_dir) {
  iv1::TrainerCommand command;
  if (job_.kind() == kEvaluation) {
    DEX_ASSIGN_OR_RETURN(*command.mutable_evaluate(), evaluator_start(job_, models_, paths_));
    command.mutable_evaluate()->set_attempt_dir(attempt_dir.string());
    command.mutable_evaluate()->set_threads(options_.threads);
  } else {
    DEX_ASSIGN_OR_RETURN(*command.mutable_start(), trainer_start());
    command.mutable_start()->set_attempt_dir(attempt_dir.string());
  }
  // It stands until this attempt offers a newer one.
  if (job_.has_checkpoint()) log_.set_checkpoint(job_.checkpoint());
  DEX_RETURN_IF_ERROR(base::make_directories(attempt_dir));
  return command;
}

base::Result<iv1::TrainerStart> Attempt::trainer_start() {
  // A scheduler of before says the base only in the spec.
  const std::string& base = job_.base_model().empty() ? job_.spec().model() : job_.base_model();
  const auto* model = find_model(models_, base);
  if (model == nullptr) {
    return base::not_found("MODEL_NOT_FOUND",
                           "this worker has no model '" + base + "' in its allow-list");
  }
  iv1::TrainerStart start;
  start.set_job_id(job_.job_id());
  start.set_heads_only(job_.kind() == kHeadSelection);
  *start.mutable_spec() = job_.spec();
  start.set_model_dir(model->folder.string());
  start.set_base_model_name(model->name);
  start.set_base_weights_sha256(model->weights_sha256);
  DEX_ASSIGN_OR_RETURN(const auto training, paths_.absolute(job_.training_input().path()));
  start.set_training_path(training.string());
  start.set_training_sha256(job_.training_input().sha256());
  if (job_.has_validation_input()) {
    DEX_ASSIGN_OR_RETURN(const auto validation, paths_.absolute(job_.validation_input().path()));
    start.set_validation_path(validation.string());
    start.set_validation_sha256(job_.validation_input().sha256());
  }
  if (job_.has_probe_input()) {
    DEX_ASSIGN_OR_RETURN(const auto probe, paths_.absolute(job_.probe_input().path()));
    start.set_probe_path(probe.string());
    start.set_probe_sha256(job_.probe_input().sha256());
  }
  if (job_.has_checkpoint()) {
    DEX_ASSIGN_OR_RETURN(const auto checkpoint, paths_.absolute(job_.checkpoint().uri()));
    start.set_checkpoint_dir(checkpoint.string());
    start.set_checkpoint_manifest_sha256(job_.checkpoint().manifest_sha256());
  }
  if (job_.has_start_adapter()) {
    DEX_ASSIGN_OR_RETURN(const auto adapter, paths_.absolute(job_.start_adapter().path()));
    start.set_start_adapter(job_.start_adapter().id());
    start.set_start_adapter_dir(adapter.string());
    start.set_start_adapter_sha256(job_.start_adapter().content_sha256());
  }
  start.set_attempt(job_.attempt());
  start.set_oom_retries(job_.oom_retries());
  start.set_threads(options_.threads);
  start.set_stop_grace_seconds(static_cast<double>(options_.stop.stop_grace_ms) / 1000.0);
  return start;
}

AttemptEnd Attempt::supervise(TrainerProcess& trainer) {
  AttemptEnd end;
  StopSequence stop(options_.stop);
  last_sign_ms_ = clock_.steady_ms();
  while (true) {
    auto report = trainer.read(options_.look_ms);
    if (report.ok()) {
      take(*report, end);
    } else if (report.status().code() != base::Code::kDeadlineExceeded) {
      if (report.status().reason() != "CHANNEL_CLOSED")
        end.broken_channel = report.status().message();
      break;
    }
    const int64_t now = clock_.steady_ms();
    if (options_.orphan_limit_ms > 0 && now - last_answer_ms_ > options_.orphan_limit_ms) {
      order(Order::kDrain);
    }
    const auto due = stop.due(order_, now);
    push(trainer, due);
    if (due.sigkill) break;
    if (!end.result && stalled()) {
      spdlog::warn("job {}: no step for {} s, trainer killed", job_id(),
                   (now - last_sign_ms_) / 1000);
      end.stalled = true;
      break;
    }
  }
  // The channel is closed: an orderly trainer is about to exit. One that stalled, hangs or talks
  // nonsense is not waited for.
  const bool orderly = !end.stalled && end.broken_channel.empty();
  std::optional<base::ExitStatus> exit;
  if (orderly) exit = trainer.process().wait(options_.stop.kill_grace_ms);
  end.exit = exit ? *exit : trainer.process().terminate(0);
  end.order = order_;
  return end;
}

void Attempt::take(const iv1::TrainerReport& report, AttemptEnd& end) {
  last_sign_ms_ = clock_.steady_ms();
  switch (report.report_case()) {
    case iv1::TrainerReport::kReady:
      spdlog::info("job {}: trainer {} ready on {}", job_id(), report.ready().version(),
                   report.ready().device());
      break;
    case iv1::TrainerReport::kProgress:
      take_progress(report.progress());
      break;
    case iv1::TrainerReport::kEvent: {
      auto event = report.event();
      event.set_attempt(job_.attempt());
      log_.add_event(std::move(event));
      break;
    }
    case iv1::TrainerReport::kCheckpoint:
      take_checkpoint(report.checkpoint());
      break;
    case iv1::TrainerReport::kResult:
      end.result = report.result();
      break;
    case iv1::TrainerReport::REPORT_NOT_SET:
      break;
  }
}

void Attempt::take_progress(const iv1::TrainerReport::TrainerProgress& progress) {
  const auto& figures = progress.progress();
  log_.set_progress(progress.phase(), figures);
  if (progress.step_seconds() > 0 && figures.step() != last_step_) {
    stepped_ = true;
    metrics_.train_step.Observe(progress.step_seconds());
  }
  last_step_ = figures.step();
  // The trainer counts over all attempts; this worker counts what it sees grow.
  if (counted_tokens_ >= 0 && figures.trained_tokens() > counted_tokens_) {
    metrics_.train_tokens.Increment(
        static_cast<double>(figures.trained_tokens() - counted_tokens_));
  }
  counted_tokens_ = figures.trained_tokens();
  if (progress.nonfinite_steps() > counted_nonfinite_) {
    metrics_.train_nonfinite.Increment(progress.nonfinite_steps() - counted_nonfinite_);
  }
  counted_nonfinite_ = std::max(counted_nonfinite_, progress.nonfinite_steps());
}

void Attempt::take_checkpoint(const iv1::TrainerReport::CheckpointDone& done) {
  if (!done.error().empty()) {
    metrics_.checkpoint_failures.Increment();
    spdlog::warn("job {}: checkpoint at step {} failed: {}", job_id(), done.step(), done.error());
    return;
  }
  metrics_.checkpoint_write.Observe(done.seconds());
  metrics_.checkpoint_bytes.Increment(static_cast<double>(done.bytes()));
  const auto uri = paths_.relative(done.uri());
  if (!uri.ok()) {
    spdlog::error("job {}: checkpoint ignored: {}", job_id(), uri.status().to_string());
    return;
  }
  iv1::CheckpointRef checkpoint;
  checkpoint.set_uri(*uri);
  checkpoint.set_manifest_sha256(done.manifest_sha256());
  checkpoint.set_step(done.step());
  log_.set_checkpoint(checkpoint);
}

void Attempt::push(TrainerProcess& trainer, const StopSequence::Due& due) {
  if (due.frame) {
    spdlog::info("job {}: trainer {} told to stop ({})", job_id(), trainer.process().pid(),
                 iv1::TrainerCommand::Stop::Reason_Name(reason_of(order_)));
    iv1::TrainerCommand command;
    command.mutable_stop()->set_reason(reason_of(order_));
    command.mutable_stop()->set_grace_ms(due.grace_ms);
    trainer.send(command);
  }
  if (due.sigterm) trainer.process().signal(SIGTERM);
  if (due.sigkill) {
    spdlog::warn("job {}: trainer {} does not stop and is killed", job_id(),
                 trainer.process().pid());
    trainer.process().signal(SIGKILL);
  }
}

bool Attempt::stalled() const {
  int64_t limit = options_.default_stall_ms;
  if (job_.spec().has_watchdog() && job_.spec().watchdog().has_stall_seconds()) {
    limit = static_cast<int64_t>(job_.spec().watchdog().stall_seconds() * 1000.0);
  }
  if (limit <= 0) return false;
  if (!stepped_) limit = std::max(limit, options_.first_sign_ms);
  return clock_.steady_ms() - last_sign_ms_ > limit;
}

Verdict Attempt::finish(const AttemptEnd& end) {
  Verdict verdict = judge(end);
  if (verdict.outcome == iv1::OUTCOME_SUCCESS) {
    result_ = end.result->result();
    const auto uri = paths_.relative(result_->uri());
    if (uri.ok()) {
      result_->set_uri(*uri);
    } else {
      verdict = {};
      verdict.outcome = iv1::OUTCOME_CRASH;
      verdict.code = "internal";
      verdict.message = "trainer left its result at the wrong place: " + uri.status().message();
      result_.reset();
    }
  }
  spdlog::info(
      "job {} epoch {}: {}, {}{}{}", job_id(), epoch(), end.exit.to_string(),
      verdict.report ? iv1::Outcome_Name(verdict.outcome) : "lease lost, nothing to report",
      verdict.message.empty() ? "" : ": ", verdict.message);
  return verdict;
}

}  // namespace dex::agent
