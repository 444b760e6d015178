// A trainer without a model: speaks the frames of a real one and behaves as the job's suffix says.
//   success        three steps, a checkpoint, many events, a result
//   exit-<code>    that exit code, no result frame
//   crash          SIGABRT
//   wait           steps until told to stop, then the checkpoint and the outcome that belongs to it
//   hang           steps, deaf to frames and to SIGTERM
//   stall          one step, then nothing
//   nonsense       bytes that are no frame
//   silent-success exit code 0 without a result
//   go-on          success if it was given the adapter of SlotTest to go on from, else exit code 10
//   probe          success if it was given the probe file of SlotTest, else exit code 10
//   heads-only     success if it was told to choose heads and nothing else, else exit code 10
//   where          success, but the result lies outside the attempt's directory
// As `dex-fake-trainer evaluation` it plays an evaluation's process: success, with an event that
// names the first file. With a first subject labelled "slow" it says before, for three seconds,
// that it stands where it stood.

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/frame_channel.h"

namespace {

namespace iv1 = dex::internal::v1;
using dex::base::FrameChannel;

constexpr int64_t kPatience_ms = 30'000;

void send(FrameChannel& channel, const iv1::TrainerReport& report) {
  if (!channel.write(report.SerializeAsString(), kPatience_ms).ok()) std::exit(1);
}

void send_step(FrameChannel& channel, uint32_t step) {
  iv1::TrainerReport report;
  auto& progress = *report.mutable_progress();
  progress.set_phase(dex::v1::JOB_PHASE_TRAINING);
  progress.set_step_seconds(0.5);
  progress.mutable_progress()->set_step(step);
  progress.mutable_progress()->set_trained_tokens(100 * step);
  send(channel, report);
}

void send_checkpoint(FrameChannel& channel, const iv1::TrainerStart& start, uint32_t step) {
  iv1::TrainerReport report;
  auto& done = *report.mutable_checkpoint();
  done.set_uri(start.attempt_dir() + "/step-" + std::to_string(step));
  done.set_manifest_sha256(std::string(64, 'a'));
  done.set_step(step);
  done.set_bytes(1000);
  done.set_seconds(0.1);
  send(channel, report);
}

void send_result(FrameChannel& channel, iv1::Outcome outcome, const std::string& uri) {
  iv1::TrainerReport report;
  auto& result = *report.mutable_result();
  result.set_outcome(outcome);
  if (!uri.empty()) result.mutable_result()->set_uri(uri);
  send(channel, report);
}

void succeed(FrameChannel& channel, const iv1::TrainerStart& start, const std::string& final_dir) {
  for (uint32_t step = 1; step <= 3; ++step) send_step(channel, step);
  send_checkpoint(channel, start, 3);
  for (int i = 0; i < 300; ++i) {
    iv1::TrainerReport report;
    report.mutable_event()->set_message("event " + std::to_string(i));
    send(channel, report);
  }
  send_result(channel, iv1::OUTCOME_SUCCESS, final_dir);
}

int wait_for_stop(FrameChannel& channel, const iv1::TrainerStart& start) {
  for (uint32_t step = 1;; ++step) {
    send_step(channel, step);
    const auto frame = channel.read(20);
    if (!frame.ok() && frame.status().code() != dex::base::Code::kDeadlineExceeded) return 1;
    iv1::TrainerCommand command;
    if (!frame.ok() || !command.ParseFromString(*frame) || !command.has_stop()) continue;
    using Stop = iv1::TrainerCommand::Stop;
    const auto reason = command.stop().reason();
    if (reason != Stop::REASON_CANCEL) send_checkpoint(channel, start, step);
    send_result(channel,
                reason == Stop::REASON_CANCEL  ? iv1::OUTCOME_CANCELLED
                : reason == Stop::REASON_PAUSE ? iv1::OUTCOME_PAUSED
                                               : iv1::OUTCOME_RELEASE,
                "");
    return 16;
  }
}

[[noreturn]] void hang(FrameChannel& channel) {
  for (uint32_t step = 1;; ++step) {
    send_step(channel, step);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

int behave(FrameChannel& channel, const iv1::TrainerStart& start) {
  const std::string& how = start.spec().suffix();
  iv1::TrainerReport ready;
  ready.mutable_ready()->set_version("fake");
  ready.mutable_ready()->set_device("none");
  send(channel, ready);
  if (how.starts_with("exit-")) return std::stoi(how.substr(5));
  if (how == "crash") std::abort();
  if (how == "wait") return wait_for_stop(channel, start);
  if (how == "hang") hang(channel);
  if (how == "stall") {
    send_step(channel, 1);
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (how == "nonsense") {
    (void)!write(3, "\xff\xff\xff\xff", 4);
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (how == "silent-success") return 0;
  if (how == "heads-only" && !start.heads_only()) return 10;
  if (how == "go-on") {
    const bool given = start.start_adapter() == "ft:tiny:default::01" &&
                       start.start_adapter_dir().ends_with("/jobs/default/ftjob-0/final") &&
                       start.start_adapter_dir().starts_with("/") &&
                       start.start_adapter_sha256() == "dd" && start.base_model_name() == "tiny";
    if (!given) return 10;
  }
  if (how == "probe" && (!start.probe_path().ends_with("/files/p.jsonl") ||
                         !start.probe_path().starts_with("/") || start.probe_sha256() != "ee"))
    return 10;
  succeed(channel, start, how == "where" ? "/elsewhere/final" : start.attempt_dir() + "/final");
  return 0;
}

// A long batch of an evaluation: no task gets further, but the engine takes its steps.
void stay(FrameChannel& channel) {
  for (int i = 0; i < 60; ++i) {
    iv1::TrainerReport report;
    report.mutable_progress()->set_phase(dex::v1::JOB_PHASE_EVALUATING);
    report.mutable_progress()->mutable_progress()->set_total_steps(1);
    send(channel, report);
    (void)channel.read(50).ok();  // nothing comes: a pause
  }
}

int evaluate(FrameChannel& channel, const iv1::EvaluatorStart& start) {
  if (start.spec().subjects(0).label() == "slow") stay(channel);
  iv1::TrainerReport report;
  report.mutable_event()->set_type("job_evaluation");
  report.mutable_event()->set_message(start.files(0).path());
  send(channel, report);
  send_result(channel, iv1::OUTCOME_SUCCESS, start.attempt_dir() + "/final");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  FrameChannel channel{dex::base::Fd(3)};
  const auto frame = channel.read(kPatience_ms);
  iv1::TrainerCommand command;
  if (!frame.ok() || !command.ParseFromString(*frame)) return 10;
  const bool evaluation = argc > 1 && std::string(argv[1]) == "evaluation";
  if (evaluation != command.has_evaluate() || evaluation == command.has_start()) return 10;
  if (evaluation) return evaluate(channel, command.evaluate());
  if (command.start().spec().suffix() == "hang") std::signal(SIGTERM, SIG_IGN);
  return behave(channel, command.start());
}
