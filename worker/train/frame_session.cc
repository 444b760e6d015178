// protobuf ⇄ plain. This file includes no LibTorch header (performance.md §7).
#include "worker/train/frame_session.h"

#include <google/protobuf/util/json_util.h>
#include <spdlog/spdlog.h>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/version.h"

namespace dex::train {
namespace {

namespace pb = dex::v1;
namespace internal = dex::internal::v1;
using internal::TrainerCommand;
using internal::TrainerReport;

constexpr int64_t kWriteTimeoutMs = 10'000;

pb::JobPhase to_proto(Phase phase) {
  pb::JobPhase out = pb::JOB_PHASE_UNSPECIFIED;
  pb::JobPhase_Parse(std::string("JOB_PHASE_") + name(phase), &out);
  return out;
}

void fill(const Progress& in, int64_t now_ms, pb::Progress& out) {
  out.set_step(static_cast<uint32_t>(in.step));
  out.set_total_steps(static_cast<uint32_t>(in.total_steps));
  out.set_epoch(in.epoch);
  if (in.total_steps > 0) {
    out.set_progress_percentage(100.0 * static_cast<double>(in.step) /
                                static_cast<double>(in.total_steps));
  }
  out.set_estimated_remaining_seconds(in.estimated_remaining_seconds);
  out.set_trained_tokens(in.trained_tokens);
  if (in.train_loss) out.set_train_loss(*in.train_loss);
  if (in.valid_loss) out.set_valid_loss(*in.valid_loss);
  if (in.grad_norm) out.set_grad_norm(*in.grad_norm);
  if (in.learning_rate) out.set_learning_rate(*in.learning_rate);
  if (in.lambda_mean) out.set_lambda_mean(*in.lambda_mean);
  if (in.branch_ratio) out.set_branch_ratio(*in.branch_ratio);
  out.set_tokens_per_second(in.tokens_per_second);
  out.set_host_memory_bytes(in.host_memory_bytes);
  out.mutable_last_updated_time()->set_seconds(now_ms / 1000);
  out.mutable_last_updated_time()->set_nanos(static_cast<int32_t>(now_ms % 1000 * 1'000'000));
}

void fill(const evaluate::BranchEffect& in, pb::BranchEffect& out) {
  pb::BranchEffect::Verdict verdict = pb::BranchEffect::VERDICT_UNSPECIFIED;
  pb::BranchEffect::Verdict_Parse(std::string("VERDICT_") + evaluate::name(in.verdict), &verdict);
  out.set_verdict(verdict);
  out.set_value(in.value);
  for (const auto& layer : in.layers) {
    auto& entry = *out.add_per_layer();
    if (layer.ratio) entry.set_ratio(*layer.ratio);
    entry.set_cosine(layer.cosine);
    entry.set_lambda(layer.lambda);
  }
  out.set_ce_delta(in.ce_delta);
  out.set_tokens(in.tokens);
}

void fill(const Published& in, pb::JobMetrics& out) {
  if (in.base_valid_loss) out.set_base_valid_loss(*in.base_valid_loss);
  if (in.valid_loss) out.set_valid_loss(*in.valid_loss);
  if (in.best_valid_loss) out.set_best_valid_loss(*in.best_valid_loss);
  if (in.best_step) out.set_best_step(static_cast<uint32_t>(*in.best_step));
  out.set_served_step(static_cast<uint32_t>(in.served_step));
  out.set_early_stopped(in.early_stopped);
  out.set_trained_parameters(in.trained_parameters);
  out.set_added_parameters(in.added_parameters);
  out.set_peak_host_memory_bytes(in.peak_host_memory_bytes);
  out.set_tokens_per_second(in.tokens_per_second);
  if (in.base_kl) out.set_base_kl(*in.base_kl);
  if (in.gradient_range) out.set_gradient_range(*in.gradient_range);
}

void fill(const GateResult& in, pb::GateResult& out) {
  out.set_gate(in.gate);
  out.set_value(in.figure.value);
  if (in.figure.interval) {
    out.set_low(in.figure.interval->low);
    out.set_high(in.figure.interval->high);
  }
  out.set_n(in.figure.n);
  out.set_passed(in.passed);
  out.set_on_fail(name(in.on_fail));
  out.set_condition(in.condition);
  out.set_not_measured(in.not_measured);
}

void fill(const MemoryProbe& in, pb::MemoryProbe& out) {
  out.set_peak_memory_bytes(in.peak_memory_bytes);
  out.set_step_seconds(in.step_seconds);
  out.set_step_tokens(in.step_tokens);
  out.set_longest_row_tokens(in.longest_row_tokens);
  out.set_micro_batch_size(static_cast<uint32_t>(in.micro_batch_size));
  out.set_max_seq_length(static_cast<uint32_t>(in.max_seq_length));
  out.set_total_steps(in.total_steps);
}

void fill(const OutOfMemory& in, pb::OutOfMemory& out) {
  pb::OutOfMemory::Where where = pb::OutOfMemory::WHERE_UNSPECIFIED;
  pb::OutOfMemory::Where_Parse(std::string("WHERE_") + name(in.where), &where);
  out.set_where(where);
  out.set_longest_row_tokens(in.longest_row_tokens);
  out.set_peak_memory_bytes(in.peak_memory_bytes);
  out.set_micro_batch_size(static_cast<uint32_t>(in.micro_batch_size));
  out.set_max_seq_length(static_cast<uint32_t>(in.max_seq_length));
  out.set_step(static_cast<uint32_t>(in.step));
  if (in.retry_micro_batch_size) {
    (*out.mutable_retry_with())["hyperparameters.micro_batch_size"] =
        static_cast<uint32_t>(*in.retry_micro_batch_size);
  }
}

void fill(const Published& in, internal::AttemptResult& out) {
  out.set_uri(in.path);
  out.set_manifest_sha256(in.manifest_sha256);
  out.set_bytes(in.bytes);
  out.set_trained_tokens(in.trained_tokens);
  fill(in, *out.mutable_metrics());
  fill(in.branch_effect, *out.mutable_branch_effect());
  for (const GateResult& result : in.gate_results) fill(result, *out.add_gate_results());
  out.set_promotable(in.promotable);
  if (in.memory_probe) fill(*in.memory_probe, *out.mutable_memory_probe());
  auto& adapter = *out.mutable_adapter();
  adapter.set_base_model(in.base_model);
  adapter.set_start_adapter(in.start_adapter);
  adapter.set_base_weights_sha256(in.base_weights_sha256);
  adapter.set_tokenizer_sha256(in.tokenizer_sha256);
  adapter.set_chat_template_sha256(in.chat_template_sha256);
  adapter.set_method(in.method);
  adapter.set_form(in.form);
  adapter.set_projection(in.projection);
  adapter.set_train(in.train);
  adapter.set_artifact_class(in.artifact_class);
  adapter.set_bytes(in.bytes);
  adapter.set_content_sha256(in.manifest_sha256);
  adapter.set_version(in.manifest_sha256.substr(0, 12));
  *adapter.mutable_branch_effect() = out.branch_effect();
  *adapter.mutable_metrics() = out.metrics();
}

internal::Outcome outcome(const Ending& ending) {
  switch (ending.exit) {
    case Exit::kSuccess:
      return internal::OUTCOME_SUCCESS;
    case Exit::kStopped:
      if (ending.stopped == StopReason::kCancel) return internal::OUTCOME_CANCELLED;
      return ending.stopped == StopReason::kPause ? internal::OUTCOME_PAUSED
                                                  : internal::OUTCOME_RELEASE;
    case Exit::kOutOfMemory:
      return internal::OUTCOME_OOM;
    case Exit::kDiskFull:
      return internal::OUTCOME_DISK_FULL;
    case Exit::kBrokenInput:
      return internal::OUTCOME_RELEASE;
    case Exit::kRetryable:
    case Exit::kBrokenCheckpoint:  // where the agent finds no other way
    case Exit::kInternal:
      return internal::OUTCOME_FAIL_RETRY;
    default:
      return internal::OUTCOME_FAIL_FINAL;
  }
}

StopReason reason(TrainerCommand::Stop::Reason in) {
  if (in == TrainerCommand::Stop::REASON_CANCEL) return StopReason::kCancel;
  return in == TrainerCommand::Stop::REASON_PAUSE ? StopReason::kPause : StopReason::kDrain;
}

Stopped agent_gone(const base::Status& status) {
  return {StopReason::kCancel, "the agent is gone: " + status.message()};
}

}  // namespace

FrameSession::FrameSession(base::FrameChannel& channel, const base::StopSignals& signals,
                           const base::Clock& clock)
    : channel_(channel), signals_(signals), clock_(clock) {}

std::string FrameSession::await_start(int64_t timeout_ms) {
  const auto frame = channel_.read(timeout_ms, signals_.token());
  if (!frame.ok()) throw agent_gone(frame.status());
  TrainerCommand command;
  if (!command.ParseFromString(frame.value()) || !command.has_start()) {
    throw Failure(Exit::kInternal, "internal", "the first frame must be Start");
  }
  return command.start().SerializeAsString();
}

void FrameSession::send(const std::string& frame) {
  const auto status = channel_.write(frame, kWriteTimeoutMs);
  if (!status.ok()) throw agent_gone(status);
}

void FrameSession::ready(const std::string& device) {
  TrainerReport report;
  report.mutable_ready()->set_version(std::string(base::version()));
  report.mutable_ready()->set_device(device);
  send(report.SerializeAsString());
}

void FrameSession::progress(Phase phase, const Progress& progress) {
  TrainerReport report;
  auto& out = *report.mutable_progress();
  out.set_phase(to_proto(phase));
  fill(progress, clock_.now_ms(), *out.mutable_progress());
  out.set_step_seconds(progress.step_seconds);
  out.set_nonfinite_steps(static_cast<uint32_t>(progress.nonfinite_steps));
  channel_.offer(report.SerializeAsString());
}

void FrameSession::event(const Event& event) {
  TrainerReport report;
  auto& out = *report.mutable_event();
  if (!event.data.empty()) {
    const std::string json = "{\"" + event.type + "\":" + event.data + "}";
    const auto status = google::protobuf::util::JsonStringToMessage(json, &out);
    // A wrong name here is a fault of ours; the event still goes out, without its data.
    if (!status.ok())
      spdlog::error("event {} has data that is not its message: {}", event.type, status.ToString());
  }
  out.set_type(event.type);
  out.set_message(event.message);
  out.set_level(event.level == Event::Level::kError  ? pb::FineTuningEvent::LEVEL_ERROR
                : event.level == Event::Level::kWarn ? pb::FineTuningEvent::LEVEL_WARN
                                                     : pb::FineTuningEvent::LEVEL_INFO);
  out.set_attempt(static_cast<uint32_t>(attempt_));
  const int64_t now_ms = clock_.now_ms();
  out.mutable_create_time()->set_seconds(now_ms / 1000);
  out.mutable_create_time()->set_nanos(static_cast<int32_t>(now_ms % 1000 * 1'000'000));
  send(report.SerializeAsString());
}

void FrameSession::checkpoint(const CheckpointReport& in) {
  TrainerReport report;
  auto& out = *report.mutable_checkpoint();
  out.set_request(in.request);
  out.set_uri(in.path);
  out.set_manifest_sha256(in.manifest_sha256);
  out.set_step(static_cast<uint32_t>(in.step));
  out.set_bytes(in.bytes);
  out.set_seconds(in.seconds);
  out.set_error(in.error);
  send(report.SerializeAsString());
}

void FrameSession::end(const Ending& ending) {
  TrainerReport report;
  auto& out = *report.mutable_result();
  out.set_outcome(outcome(ending));
  out.set_code(ending.code);
  out.set_message(ending.message);
  out.set_param(ending.param);
  if (ending.published) fill(*ending.published, *out.mutable_result());
  if (ending.out_of_memory) fill(*ending.out_of_memory, *out.mutable_out_of_memory());
  send(report.SerializeAsString());
}

Command FrameSession::poll() {
  if (signals_.token().stop_requested() && !drain_told_) {
    drain_told_ = true;
    return {Command::Kind::kStop, "", StopReason::kDrain};
  }
  const auto frame = channel_.read(0);
  if (!frame.ok()) {
    if (frame.status().code() == base::Code::kDeadlineExceeded) return {};
    throw agent_gone(frame.status());
  }
  TrainerCommand command;
  if (!command.ParseFromString(frame.value())) {
    throw Failure(Exit::kInternal, "internal", "a malformed frame came from the agent");
  }
  if (command.has_stop()) return {Command::Kind::kStop, "", reason(command.stop().reason())};
  if (command.has_checkpoint())
    return {Command::Kind::kCheckpoint, command.checkpoint().request(), {}};
  if (command.has_acknowledged()) {
    const auto& held = command.acknowledged();
    return {Command::Kind::kAcknowledged, "", {}, held.uri(), held.offered()};
  }
  return {};
}

}  // namespace dex::train
