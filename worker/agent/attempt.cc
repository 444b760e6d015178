#include "worker/agent/attempt.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "proto/gate_tasks.h"
#include "services/base/files.h"
#include "services/rpc/times.h"
#include "worker/agent/artefact_start.h"
#include "worker/agent/earlier_checkpoint.h"
#include "worker/agent/evaluator_start.h"
#include "worker/agent/gate_checkpoint.h"

namespace dex::agent {

namespace {

// ClaimedJob::kind of the trainer's jobs. The second ends once its heads are chosen.
constexpr const char* kFineTuning = "finetune";
constexpr const char* kHeadSelection = "head_selection";

// From a rank's end to that of all, within which rank 0 may find out by itself and say so.
constexpr int64_t kRankGrace_ms = 500;

bool is_known(const std::string& kind) {
  return kind.empty() || kind == kFineTuning || kind == kHeadSelection || kind == kEvaluation ||
         kind == kProbe || is_about_an_adapter(kind);
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
      orphan_limit_ms_(options.orphan_limit_ms.value_or(kOrphanLeases * options.lease_ms)),
      paths_(paths),
      models_(models),
      clock_(clock),
      metrics_(metrics),
      log_(job_.job_id(), job_.epoch()),
      last_answer_ms_(clock.steady_ms()) {
  if (job_.has_checkpoint()) checkpoint_ = job_.checkpoint();
}

void Attempt::order(Order order) {
  Order now = order_;
  while (order > now && !order_.compare_exchange_weak(now, order)) {
  }
}

void Attempt::ask_checkpoint(const std::string& request) {
  const std::lock_guard lock(request_mutex_);
  request_ = request;
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
  if (job_.has_checkpoint() && is_gate_checkpoint(job_.checkpoint())) {
    if (auto verdict = go_on_with_gates(*attempt_dir, lock_fd)) return *std::move(verdict);
    checkpoint_.reset();  // where the trainer's own checkpoints lie, the job has not said since
  }
  const auto end = execute_job(*attempt_dir, lock_fd);
  if (!end.ok()) return cannot_start(end.status());
  Verdict verdict = finish(*end);
  if (verdict.outcome != iv1::OUTCOME_SUCCESS || !proto::has_task_gates(job_.spec()) ||
      job_.kind() == kProbe)
    return verdict;
  trained_.emplace();
  *trained_->mutable_result() = *result_;
  *trained_->mutable_progress() = log_.progress();
  return measure_gates(*attempt_dir, lock_fd);
}

base::Result<AttemptEnd> Attempt::execute_job(const std::filesystem::path& attempt_dir,
                                              int lock_fd) {
  while (true) {
    DEX_ASSIGN_OR_RETURN(const auto first, first_command(attempt_dir));
    DEX_ASSIGN_OR_RETURN(auto end, execute(first, attempt_dir, lock_fd));
    if (!checkpoint_ || !found_checkpoint_broken(end)) return end;
    give_up_checkpoint(end);  // each time one of a smaller step, so this ends
  }
}

void Attempt::give_up_checkpoint(const AttemptEnd& end) {
  const uint32_t step = checkpoint_->step();
  checkpoint_ = earlier_checkpoint(*checkpoint_, paths_);
  const std::string from =
      checkpoint_ ? "from step " + std::to_string(checkpoint_->step()) : "from the start";
  const std::string why = end.result ? end.result->message() : end.exit.to_string();
  const std::string detail = "the checkpoint of step " + std::to_string(step) +
                             " can't be used, training goes on " + from + " (" + why + ")";
  spdlog::error("job {}: {}", job_id(), detail);
  metrics_.checkpoint_failures.Increment();
  log_.clear_checkpoint();
  auto warning =
      event("warning", dex::v1::FineTuningEvent::LEVEL_WARN, "checkpoint_broken: " + detail);
  warning.mutable_warning()->set_code("checkpoint_broken");
  warning.mutable_warning()->set_detail(detail);
  log_.add_event(std::move(warning));
}

base::Result<AttemptEnd> Attempt::execute(const iv1::TrainerCommand& first,
                                          const std::filesystem::path& attempt_dir, int lock_fd) {
  const bool by_engine = !first.has_start();
  auto options = by_engine ? options_.evaluator : options_.trainer;
  options.log_file = attempt_dir / (by_engine ? "evaluator.log" : "trainer.log");
  options.lock_fd = lock_fd;
  std::unique_ptr<RankProcesses> others;  // after rank 0's process: it ends before them
  if (first.start().ranks() > 1) {
    std::error_code ignored;
    std::filesystem::remove(first.start().rendezvous_file(), ignored);
  }
  DEX_ASSIGN_OR_RETURN(const auto process, TrainerProcess::start(options, first));
  if (first.start().ranks() > 1) {
    DEX_ASSIGN_OR_RETURN(others, RankProcesses::start(options, first));
  }
  spdlog::info("job {} attempt {} epoch {}: {} {} started", job_id(), job_.attempt(), epoch(),
               by_engine ? "evaluator" : "trainer", process->process().pid());
  AttemptEnd end = supervise(*process, first.has_start(), others.get());
  const auto program = std::filesystem::path(options.program).filename().string();
  end.process = {program, process->process().pid(), options_.worker_id};
  return end;
}

uint32_t Attempt::ranks() const {
  const bool trains = job_.kind().empty() || job_.kind() == kFineTuning;
  return trains && !job_.hold() ? options_.ranks : 1;
}

base::Result<iv1::TrainerCommand> Attempt::first_command(const std::filesystem::path& attempt_dir) {
  iv1::TrainerCommand command;
  if (job_.kind() == kEvaluation) {
    DEX_ASSIGN_OR_RETURN(*command.mutable_evaluate(), evaluator_start(job_, models_, paths_));
    command.mutable_evaluate()->set_attempt_dir(attempt_dir.string());
    command.mutable_evaluate()->set_threads(options_.threads);
  } else if (is_about_an_adapter(job_.kind())) {
    DEX_ASSIGN_OR_RETURN(*command.mutable_artefact(), artefact_start(job_, models_, paths_));
    command.mutable_artefact()->set_attempt_dir(attempt_dir.string());
  } else {
    DEX_ASSIGN_OR_RETURN(*command.mutable_start(), trainer_start());
    command.mutable_start()->set_attempt_dir(attempt_dir.string());
    if (ranks() > 1) {
      auto& start = *command.mutable_start();
      start.set_ranks(ranks());
      start.set_rendezvous_file(RankProcesses::meeting_file(attempt_dir).string());
      const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
      start.set_threads(std::max(1u, (options_.threads > 0 ? options_.threads : cores) / ranks()));
    }
  }
  // It stands until this attempt offers a newer one.
  if (checkpoint_) log_.set_checkpoint(*checkpoint_);
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
  start.set_probe_only(job_.kind() == kProbe);
  start.set_hold(job_.hold());
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
  if (job_.has_calibration_input()) {
    DEX_ASSIGN_OR_RETURN(const auto rows, paths_.absolute(job_.calibration_input().path()));
    start.set_calibration_path(rows.string());
    start.set_calibration_sha256(job_.calibration_input().sha256());
  }
  if (checkpoint_) {
    DEX_ASSIGN_OR_RETURN(const auto checkpoint, paths_.absolute(checkpoint_->uri()));
    start.set_checkpoint_dir(checkpoint.string());
    start.set_checkpoint_manifest_sha256(checkpoint_->manifest_sha256());
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
  if (options_.prefix_cache_bytes > 0) {
    start.set_prefix_cache_dir((paths_.data_dir() / "cache" / "prefix").string());
    start.set_prefix_cache_bytes(options_.prefix_cache_bytes);
    start.set_prefix_cache_owner(job_.tenant());
  }
  start.set_stop_grace_seconds(static_cast<double>(options_.stop.stop_grace_ms) / 1000.0);
  return start;
}

std::string Attempt::last_heard() const {
  const auto phase = log_.phase();
  if (phase == dex::v1::JOB_PHASE_UNSPECIFIED) return "its start";
  return "step " + std::to_string(log_.progress().step()) + " in phase " +
         dex::v1::JobPhase_Name(phase).substr(std::string("JOB_PHASE_").size());
}

AttemptEnd Attempt::supervise(TrainerProcess& trainer, bool is_trainer, RankProcesses* others) {
  AttemptEnd end;
  Told told;
  StopSequence stop(options_.stop);
  StallClock stall(stall_options(is_trainer), clock_.steady_ms());
  std::optional<int64_t> told_result_ms, lost_ms;
  bool lingers = false;
  while (true) {
    auto report = trainer.read(options_.look_ms);
    if (report.ok()) {
      stall.heard(*report, clock_.steady_ms());
      take(*report, end);
    } else if (report.status().code() != base::Code::kDeadlineExceeded) {
      if (report.status().reason() != "CHANNEL_CLOSED")
        end.broken_channel = report.status().message();
      break;
    }
    const int64_t now = clock_.steady_ms();
    // Long after its lease ran out another worker has the job, and this attempt can publish
    // nothing.
    if (orphan_limit_ms_ > 0 && now - last_answer_ms_ > orphan_limit_ms_) order(Order::kDrain);
    const auto due = stop.due(order_, now);
    push(trainer, due);
    if (due.sigkill) break;
    if (others != nullptr && !end.result && !lost_ms && (end.lost_rank = others->lost()))
      lost_ms = now;
    if (lost_ms && !end.result && now - *lost_ms > kRankGrace_ms) {
      spdlog::warn("job {}: rank {} ended ({}), trainer killed", job_id(), end.lost_rank->rank,
                   end.lost_rank->exit.to_string());
      break;
    }
    if (is_trainer && !end.result) tell(trainer, told);
    if (!end.result && stall.stalled(now)) {
      end.stalled = true;
      end.silent_ms = stall.silent_ms(now);
      end.last_heard = last_heard();
      end.activity = activity_of(trainer.process().pid());
      spdlog::warn("job {}: nothing new for {} s after {}, trainer {} ({}) killed", job_id(),
                   end.silent_ms / 1000, end.last_heard, trainer.process().pid(), end.activity);
      break;
    }
    // What it made is told, so nothing is left to wait for: libraries may hang while they unload.
    if (end.result && !told_result_ms) told_result_ms = now;
    if (told_result_ms && now - *told_result_ms > options_.stop.kill_grace_ms) {
      spdlog::warn("job {}: trainer {} does not exit after its result, killed", job_id(),
                   trainer.process().pid());
      lingers = true;
      break;
    }
  }
  // The channel is closed: an orderly trainer is about to exit. One that stalled, hangs or talks
  // nonsense is not waited for.
  const bool given_up = end.stalled || lingers || (lost_ms && !end.result);
  const bool orderly = !given_up && end.broken_channel.empty();
  std::optional<base::ExitStatus> exit;
  if (orderly) exit = trainer.process().wait(options_.stop.kill_grace_ms);
  end.exit = exit ? *exit : trainer.process().terminate(0);
  if (others != nullptr) {
    const bool lost_one = end.result && end.result->code() == kRankLost;
    if (const auto lost = others->cause(lost_one ? options_.stop.kill_grace_ms : 0))
      end.lost_rank = lost;
    others->stop();
  }
  end.order = order_;
  return end;
}

void Attempt::take(const iv1::TrainerReport& report, AttemptEnd& end) {
  switch (report.report_case()) {
    case iv1::TrainerReport::kReady:
      spdlog::info("job {}: trainer {} ready on {}", job_id(), report.ready().version(),
                   report.ready().device());
      break;
    case iv1::TrainerReport::kProgress:
      if (trained_) {
        take_gate_progress(report.progress());
      } else {
        take_progress(report.progress());
      }
      break;
    case iv1::TrainerReport::kEvent: {
      auto event = report.event();
      event.set_attempt(job_.attempt());
      log_.add_event(std::move(event));
      break;
    }
    case iv1::TrainerReport::kCheckpoint:
      if (const auto checkpoint = take_checkpoint(report.checkpoint())) {
        if (trained_) {
          *trained_->mutable_evaluation() = *checkpoint;
          offer_trained();
        } else {
          log_.set_checkpoint(*checkpoint);
        }
      }
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
  if (progress.step_seconds() > 0 && figures.step() != last_step_)
    metrics_.train_step.Observe(progress.step_seconds());
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

std::optional<iv1::CheckpointRef> Attempt::take_checkpoint(
    const iv1::TrainerReport::CheckpointDone& done) {
  if (!done.error().empty()) {
    metrics_.checkpoint_failures.Increment();
    spdlog::warn("job {}: checkpoint at step {} failed: {}", job_id(), done.step(), done.error());
    return std::nullopt;
  }
  metrics_.checkpoint_write.Observe(done.seconds());
  metrics_.checkpoint_bytes.Increment(static_cast<double>(done.bytes()));
  const auto uri = paths_.relative(done.uri());
  if (!uri.ok()) {
    spdlog::error("job {}: checkpoint ignored: {}", job_id(), uri.status().to_string());
    return std::nullopt;
  }
  iv1::CheckpointRef checkpoint;
  checkpoint.set_uri(*uri);
  checkpoint.set_manifest_sha256(done.manifest_sha256());
  checkpoint.set_step(done.step());
  return checkpoint;
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

// Checkpoints that the scheduler has must not be tidied away, however long it stays unreachable.
void Attempt::tell(TrainerProcess& trainer, Told& told) {
  const auto folder = [this](const std::string& uri) {
    const auto path = paths_.absolute(uri);
    return path.ok() ? path->string() : std::string();
  };
  if (const auto pointers = log_.pointers(); !(pointers == told.pointers)) {
    iv1::TrainerCommand command;
    command.mutable_acknowledged()->set_uri(folder(pointers.acknowledged));
    command.mutable_acknowledged()->set_offered(folder(pointers.offered));
    trainer.send(command);
    told.pointers = pointers;
  }
  std::string request;
  {
    const std::lock_guard lock(request_mutex_);
    request = request_;
  }
  if (request == told.request) return;
  iv1::TrainerCommand command;
  command.mutable_checkpoint()->set_request(request);
  trainer.send(command);
  told.request = request;
}

StallClock::Options Attempt::stall_options(bool is_trainer) const {
  StallClock::Options options;
  options.signs = is_trainer ? StallClock::Signs::kSteps : StallClock::Signs::kFrames;
  options.limit_ms = options_.default_stall_ms;
  options.first_limit_ms = options_.first_sign_ms;
  if (job_.spec().has_watchdog() && job_.spec().watchdog().has_stall_seconds()) {
    options.limit_ms = static_cast<int64_t>(job_.spec().watchdog().stall_seconds() * 1000.0);
  }
  return options;
}

dex::v1::FineTuningEvent Attempt::event(const std::string& type,
                                        dex::v1::FineTuningEvent::Level level,
                                        const std::string& message) const {
  dex::v1::FineTuningEvent event;
  event.set_type(type);
  event.set_message(message);
  event.set_level(level);
  event.set_attempt(job_.attempt());
  *event.mutable_create_time() = rpc::timestamp(clock_.now_ms());
  return event;
}

Verdict Attempt::finish(const AttemptEnd& end) {
  Verdict verdict = judge_training(end, job_);
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
