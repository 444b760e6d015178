// A trainer without a model: speaks the frames of a real one and behaves as the job's suffix says.
//   success        three steps, a checkpoint, many events, a result
//   exit-<code>    that exit code, no result frame
//   crash          SIGABRT
//   wait           steps until told to stop, then the checkpoint and the outcome that belongs to it
//   hang           steps, deaf to frames and to SIGTERM
//   stall          one step, then nothing
//   babble         one step, then events and the same step for ever
//   acknowledged   a checkpoint, then steps until it hears that the job points to it, then success
//   offered        a checkpoint a step until it hears that the job may point to one, then success
//   asked          steps until it is asked for checkpoint "ckpt-1", which it writes; success unless
//                  it is asked again within half a second, else exit code 10
//   broken-<step>  exit code 20 if it was given the checkpoint of that step, else an event of type
//                  "begins" that names its checkpoint, and success
//   all-broken     the same of any checkpoint
//   nonsense       bytes that are no frame
//   silent-success exit code 0 without a result
//   go-on          success if it was given the adapter of SlotTest to go on from, else exit code 10
//   probe          success if it was given the probe file of SlotTest, else exit code 10
//   calibration    success if it was given the calibration file of SlotTest, else exit code 10
//   oom-<n>        out of memory in the backward pass, with n as micro_batch_size
//   probe-only     success with what it measured if it is told to do one update, else exit code 10
//   heads-only     success if it was told to choose heads and nothing else, else exit code 10
//   prefix-cache     success if it was told where to keep what frozen layers compute, else 10
//   no-prefix-cache  success if it was not, else 10
//   held           ends as paused if it is told to check the job only, else exit code 10
//   from-start     success if it was given no checkpoint, else exit code 10
//   lingers        success, and then it does not exit; lingers-deaf: and closes its channel
//   ranks          success if each of three ranks was given its number, the place to meet and two
//                  of seven threads, else exit code 10
//   rank-dies      of several ranks the last gets SIGABRT, the others hang
//   rank-dies-noticed  the same, and the others end as those that lost it
//   rank-refuses   the last finds bad rows, the others hang
//   rank-0-dies    rank 0 gets SIGABRT, the others end as those that lost it
//   where          success, but the result lies outside the attempt's directory
// As `dex-fake-trainer evaluation` it plays an evaluation's process, and behaves as its first file
// is called: success, with an event that names that file's path, or
//   measured       exit code 10 unless it is the evaluation of a job's gates; a task is done, and
//                  the adapter's loss is 0.5 (0.25 to 0.75) below the base's
//   goes-on        the same, but needs what an earlier attempt has measured
//   pairs          the same of three subjects, the third being the other adapter of SlotGatesTest,
//                  with numbers by item: each of eight is 0.25 lower than the other adapter's
//   pairs-without  the same of two subjects, since the other adapter is gone
//   bad-file       a file in the wrong format
//   too-large      out of memory
//   crash          SIGABRT
//   crash-once     SIGABRT when a task is done; as measured, if it is started again behind that
//   wait           until told to stop
// Of a job about one adapter: success if it was given the files of SlotTest, else exit code 10.
// With a first subject labelled "slow" it says before, for five seconds, that it stands where it
// stood.

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/frame_channel.h"
#include "services/base/sha256.h"

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

void send_checkpoint(FrameChannel& channel, const std::string& attempt_dir, uint32_t step) {
  iv1::TrainerReport report;
  auto& done = *report.mutable_checkpoint();
  done.set_uri(attempt_dir + "/step-" + std::to_string(step));
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
  send_checkpoint(channel, start.attempt_dir(), 3);
  for (int i = 0; i < 300; ++i) {
    iv1::TrainerReport report;
    report.mutable_event()->set_message("event " + std::to_string(i));
    send(channel, report);
  }
  send_result(channel, iv1::OUTCOME_SUCCESS, final_dir);
}

// Steps until a command comes of which `heard` holds.
void step_until(FrameChannel& channel,
                const std::function<bool(const iv1::TrainerCommand&)>& heard) {
  for (uint32_t step = 2;; ++step) {
    send_step(channel, step);
    const auto frame = channel.read(20);
    iv1::TrainerCommand command;
    if (frame.ok() && command.ParseFromString(*frame) && heard(command)) return;
  }
}

void await_acknowledged(FrameChannel& channel, const std::string& attempt_dir) {
  send_checkpoint(channel, attempt_dir, 1);
  step_until(channel, [&](const iv1::TrainerCommand& command) {
    return command.acknowledged().uri() == attempt_dir + "/step-1";
  });
}

void await_offered(FrameChannel& channel, const std::string& attempt_dir) {
  uint32_t step = 1;
  send_checkpoint(channel, attempt_dir, step);
  while (true) {
    send_step(channel, ++step);
    send_checkpoint(channel, attempt_dir, step);
    const auto frame = channel.read(20);
    iv1::TrainerCommand command;
    if (frame.ok() && command.ParseFromString(*frame) &&
        command.acknowledged().offered().starts_with(attempt_dir + "/step-"))
      return;
  }
}

// Whether it was asked once.
bool answer_request(FrameChannel& channel, const std::string& attempt_dir) {
  const auto asked = [](const iv1::TrainerCommand& command) { return command.has_checkpoint(); };
  bool right = false;
  step_until(channel, [&](const iv1::TrainerCommand& command) {
    right = command.checkpoint().request() == "ckpt-1";
    return asked(command);
  });
  send_checkpoint(channel, attempt_dir, 2);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (std::chrono::steady_clock::now() < end) {
    const auto frame = channel.read(20);
    iv1::TrainerCommand command;
    if (frame.ok() && command.ParseFromString(*frame) && asked(command)) return false;
  }
  return right;
}

[[noreturn]] void babble(FrameChannel& channel) {
  while (true) {
    send_step(channel, 1);
    iv1::TrainerReport report;
    report.mutable_event()->set_type("warning");
    send(channel, report);
    (void)channel.read(10).ok();  // nothing comes: a pause
  }
}

// As a trainer whose checkpoint does not match its hash.
[[noreturn]] void refuse_checkpoint(FrameChannel& channel, const iv1::TrainerStart& start) {
  iv1::TrainerReport report;
  report.mutable_result()->set_outcome(iv1::OUTCOME_FAIL_RETRY);
  report.mutable_result()->set_code("internal");
  report.mutable_result()->set_message(start.checkpoint_dir() + " does not match its SHA-256");
  send(channel, report);
  std::exit(20);
}

void say_where_it_begins(FrameChannel& channel, const iv1::TrainerStart& start) {
  iv1::TrainerReport report;
  report.mutable_event()->set_type("begins");
  report.mutable_event()->set_message(start.checkpoint_dir() + " " +
                                      start.checkpoint_manifest_sha256());
  send(channel, report);
}

int wait_for_stop(FrameChannel& channel, const std::string& attempt_dir) {
  for (uint32_t step = 1;; ++step) {
    send_step(channel, step);
    const auto frame = channel.read(20);
    if (!frame.ok() && frame.status().code() != dex::base::Code::kDeadlineExceeded) return 1;
    iv1::TrainerCommand command;
    if (!frame.ok() || !command.ParseFromString(*frame) || !command.has_stop()) continue;
    using Stop = iv1::TrainerCommand::Stop;
    const auto reason = command.stop().reason();
    if (reason != Stop::REASON_CANCEL) send_checkpoint(channel, attempt_dir, step);
    send_result(channel,
                reason == Stop::REASON_CANCEL  ? iv1::OUTCOME_CANCELLED
                : reason == Stop::REASON_PAUSE ? iv1::OUTCOME_PAUSED
                                               : iv1::OUTCOME_RELEASE,
                "");
    return 16;
  }
}

int run_out_of_memory(FrameChannel& channel, unsigned long micro_batch_size) {
  send_step(channel, 1);
  iv1::TrainerReport report;
  auto& result = *report.mutable_result();
  result.set_outcome(iv1::OUTCOME_OOM);
  result.set_code("out_of_memory");
  result.set_message("out of memory in the backward pass");
  auto& memory = *result.mutable_out_of_memory();
  memory.set_where(dex::v1::OutOfMemory::WHERE_BACKWARD);
  memory.set_longest_row_tokens(512);
  memory.set_micro_batch_size(static_cast<uint32_t>(micro_batch_size));
  send(channel, report);
  return 13;
}

void send_probe(FrameChannel& channel, const std::string& final_dir) {
  iv1::TrainerReport report;
  auto& result = *report.mutable_result();
  result.set_outcome(iv1::OUTCOME_SUCCESS);
  result.mutable_result()->set_uri(final_dir);
  result.mutable_result()->mutable_memory_probe()->set_peak_memory_bytes(123);
  send(channel, report);
}

[[noreturn]] void hang(FrameChannel& channel) {
  for (uint32_t step = 1;; ++step) {
    send_step(channel, step);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void send_failure(FrameChannel& channel, iv1::Outcome outcome, const std::string& code,
                  const std::string& message) {
  iv1::TrainerReport report;
  auto& result = *report.mutable_result();
  result.set_outcome(outcome);
  result.set_code(code);
  result.set_message(message);
  send(channel, report);
}

int be_one_of_three(FrameChannel& channel, const iv1::TrainerStart& start) {
  const std::filesystem::path folder = start.attempt_dir();
  const bool told = start.ranks() == 3 && start.rank() < 3 && start.threads() == 2 &&
                    start.rendezvous_file() == (folder / "ranks.meeting").string() &&
                    !std::filesystem::exists(start.rendezvous_file());
  if (!told) return 10;
  std::ofstream(folder / ("rank-" + std::to_string(start.rank()))) << "here";
  if (start.rank() > 0) return 0;
  for (const char* other : {"rank-1", "rank-2"}) {
    while (!std::filesystem::exists(folder / other)) (void)channel.read(5).ok();
  }
  succeed(channel, start, start.attempt_dir() + "/final");
  return 0;
}

// One rank ends as the job's suffix says.
int lose_a_rank(FrameChannel& channel, const iv1::TrainerStart& start) {
  const std::string& how = start.spec().suffix();
  const uint32_t dying = how == "rank-0-dies" ? 0 : start.ranks() - 1;
  if (start.rank() == dying && how != "rank-refuses") std::abort();
  if (start.rank() == dying) {
    send_failure(channel, iv1::OUTCOME_FAIL_FINAL, "invalid_training_file", "bad rows");
    return 11;
  }
  if (how == "rank-dies" || how == "rank-refuses") hang(channel);
  send_failure(channel, iv1::OUTCOME_FAIL_RETRY, "rank_lost", "all-reduce: connection closed");
  return 18;
}

int behave(FrameChannel& channel, const iv1::TrainerStart& start) {
  const std::string& how = start.spec().suffix();
  iv1::TrainerReport ready;
  ready.mutable_ready()->set_version("fake");
  ready.mutable_ready()->set_device("none");
  send(channel, ready);
  if (how.starts_with("exit-")) return std::stoi(how.substr(5));
  if (how == "crash") std::abort();
  if (how == "wait") return wait_for_stop(channel, start.attempt_dir());
  if (how == "hang") hang(channel);
  if (how == "ranks") return be_one_of_three(channel, start);
  if (how.starts_with("rank-")) return lose_a_rank(channel, start);
  if (how == "babble") babble(channel);
  if (how == "acknowledged") await_acknowledged(channel, start.attempt_dir());
  if (how == "offered") await_offered(channel, start.attempt_dir());
  if (how == "asked" && !answer_request(channel, start.attempt_dir())) return 10;
  if (how.starts_with("broken-") && start.checkpoint_dir().ends_with("/step-" + how.substr(7)))
    refuse_checkpoint(channel, start);
  if (how == "all-broken" && !start.checkpoint_dir().empty()) refuse_checkpoint(channel, start);
  if (how.ends_with("broken") || how.starts_with("broken-")) say_where_it_begins(channel, start);
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
  if (how.starts_with("oom-")) return run_out_of_memory(channel, std::stoul(how.substr(4)));
  if (how == "probe-only") {
    if (!start.probe_only() || start.oom_retries() != 0) return 10;
    send_probe(channel, start.attempt_dir() + "/final");
    return 0;
  }
  if (how == "held") {
    if (!start.hold() || start.ranks() > 1) return 10;
    send_result(channel, iv1::OUTCOME_PAUSED, "");
    return 16;
  }
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
  if (how == "calibration" &&
      (!start.calibration_path().ends_with("/files/c.jsonl") ||
       !start.calibration_path().starts_with("/") || start.calibration_sha256() != "cc"))
    return 10;
  if (how == "prefix-cache" &&
      (!start.prefix_cache_dir().ends_with("/cache/prefix") ||
       !start.prefix_cache_dir().starts_with("/") || start.prefix_cache_bytes() != 5 ||
       start.prefix_cache_owner() != "default"))
    return 10;
  if (how == "from-start" && !start.checkpoint_dir().empty()) return 10;
  if (how == "no-prefix-cache" && !start.prefix_cache_dir().empty()) return 10;
  succeed(channel, start, how == "where" ? "/elsewhere/final" : start.attempt_dir() + "/final");
  if (how == "lingers-deaf") channel.shutdown();
  while (how.starts_with("lingers")) std::this_thread::sleep_for(std::chrono::seconds(1));
  return 0;
}

// A long batch of an evaluation: no task gets further, but the engine takes its steps.
void stay(FrameChannel& channel) {
  for (int i = 0; i < 100; ++i) {
    iv1::TrainerReport report;
    report.mutable_progress()->set_phase(dex::v1::JOB_PHASE_EVALUATING);
    report.mutable_progress()->set_step_seconds(0.05);  // the time to begin in is over
    report.mutable_progress()->mutable_progress()->set_total_steps(1);
    send(channel, report);
    (void)channel.read(50).ok();  // nothing comes: a pause
  }
}

// `others`: how many adapters beside base and result.
bool is_of_gates(const iv1::EvaluatorStart& start, int others = 0) {
  return start.spec().subjects_size() == 2 + others && start.spec().tasks_size() == 1 &&
         start.adapters_size() == 1 + others && start.adapters(0).path().starts_with("/") &&
         start.adapters(0).path().ends_with("/attempt-5/final") &&
         start.adapters(0).id() == start.spec().subjects(1).adapter() &&
         start.attempt_dir().ends_with("/attempt-5/gates") &&
         std::filesystem::is_directory(start.attempt_dir());
}

bool has_the_other(const iv1::EvaluatorStart& start) {
  const auto& adapter = start.adapters(1);
  return adapter.id() == "ft:tiny:default:old:00" && adapter.path().starts_with("/") &&
         adapter.path().ends_with("/jobs/default/ftjob-0/final") &&
         adapter.content_sha256() == "dd" && start.spec().subjects(2).adapter() == adapter.id();
}

// services/statistics/item_rows.h, written by hand.
std::string items_of(const iv1::EvaluatorStart& start) {
  std::string text = R"({"task": "perplexity", "files": ["ff"], "left_out": 0})"
                     "\n";
  for (const auto& subject : start.spec().subjects()) {
    const std::string loss = subject.label() == "adapter" ? "2.75" : "3";
    text += R"({"metric": "loss", "dims": {}, "subject": ")" + subject.label() +
            R"(", "rule": {"shares": false, "lower_is_better": true, "exponential": false, )"
            R"("judged": true}, "items": [0, 1, 2, 3, 4, 5, 6, 7], "values": [)";
    for (int i = 0; i < 8; ++i) text += (i > 0 ? ", " : "") + loss;
    text += "]}\n";
  }
  return text;
}

// results.json and checksums.json, as a real evaluator leaves them, and items where there are any.
void send_report(FrameChannel& channel, const iv1::EvaluatorStart& start,
                 const std::string& items = "") {
  const std::string results = R"({"results": [{"task": "perplexity", "rows": [
    {"subject": "base", "metric": "loss", "value": 3},
    {"subject": "adapter", "metric": "loss", "value": 2.5, "n": "8",
     "delta": -0.5, "deltaLow": -0.75, "deltaHigh": -0.25}]}]})";
  std::string manifest = R"({"results.json": ")" + dex::base::sha256_hex(results) + "\"";
  const std::filesystem::path folder = start.attempt_dir() + "/final";
  std::filesystem::create_directories(folder);
  if (!items.empty()) {
    std::ofstream(folder / "items-1.jsonl") << items;
    manifest += R"(, "items-1.jsonl": ")" + dex::base::sha256_hex(items) + "\"";
  }
  manifest += "}\n";
  std::ofstream(folder / "results.json") << results;
  std::ofstream(folder / "checksums.json") << manifest;
  iv1::TrainerReport report;
  auto& result = *report.mutable_result();
  result.set_outcome(iv1::OUTCOME_SUCCESS);
  result.mutable_result()->set_uri(folder.string());
  result.mutable_result()->set_manifest_sha256(dex::base::sha256_hex(manifest));
  send(channel, report);
}

int crash_once(FrameChannel& channel, const iv1::EvaluatorStart& start) {
  const std::filesystem::path mark = start.attempt_dir() + "/crashed";
  if (!std::filesystem::exists(mark)) {
    std::ofstream(mark) << "once";
    send_checkpoint(channel, start.attempt_dir(), 1);
    std::abort();
  }
  if (!is_of_gates(start) || !start.checkpoint_dir().ends_with("/attempt-5/gates/step-1"))
    return 10;
  send_report(channel, start);
  return 0;
}

int evaluate(FrameChannel& channel, const iv1::EvaluatorStart& start) {
  if (start.spec().subjects(0).label() == "slow") stay(channel);
  const std::string& how = start.files(0).filename();
  if (how == "crash") std::abort();
  if (how == "crash-once") return crash_once(channel, start);
  if (how == "wait") return wait_for_stop(channel, start.attempt_dir());
  if (how == "bad-file") {
    send_failure(channel, iv1::OUTCOME_FAIL_FINAL, "invalid_evaluation_file",
                 "bad-file: line 2: is no JSON");
    return 11;
  }
  if (how == "too-large") {
    send_failure(channel, iv1::OUTCOME_OOM, "out_of_memory", "there is not enough memory");
    return 13;
  }
  if (how == "measured" || how == "goes-on") {
    const bool told = start.checkpoint_dir().ends_with("/attempt-4/gates/step-1") &&
                      start.checkpoint_manifest_sha256() == "cc";
    if (!is_of_gates(start) || told != (how == "goes-on")) return 10;
    send_step(channel, 1);
    if (!told) send_checkpoint(channel, start.attempt_dir(), 1);
    send_report(channel, start);
    return 0;
  }
  if (how == "pairs" || how == "pairs-without") {
    const bool three = how == "pairs";
    if (!is_of_gates(start, three ? 1 : 0) || (three && !has_the_other(start))) return 10;
    send_report(channel, start, items_of(start));
    return 0;
  }
  iv1::TrainerReport report;
  report.mutable_event()->set_type("job_evaluation");
  report.mutable_event()->set_message(start.files(0).path());
  send(channel, report);
  send_result(channel, iv1::OUTCOME_SUCCESS, start.attempt_dir() + "/final");
  return 0;
}

// A job about one adapter: the uploaded folder, or the published one, of SlotTest.
int make_artefact(FrameChannel& channel, const iv1::ArtefactStart& start) {
  const std::string& uploaded = start.adapter_import().path();
  const auto& exported = start.adapter_export();
  const bool taken_in = start.has_adapter_import() && uploaded.starts_with("/") &&
                        uploaded.ends_with("/jobs/default/import-1/upload");
  const bool handed_out = start.has_adapter_export() && exported.dtype() == "bf16" &&
                          exported.adapter().path().starts_with("/") &&
                          exported.adapter().path().ends_with("/jobs/default/ftjob-0/final") &&
                          exported.adapter().content_sha256() == "dd";
  if (start.base_model_name() != "tiny" || start.base_weights_sha256() != "aa") return 10;
  if (!taken_in && !handed_out) return 10;
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
  if (evaluation && command.has_artefact()) return make_artefact(channel, command.artefact());
  if (evaluation != command.has_evaluate() || evaluation == command.has_start()) return 10;
  if (evaluation) return evaluate(channel, command.evaluate());
  if (command.start().spec().suffix() == "hang") std::signal(SIGTERM, SIG_IGN);
  return behave(channel, command.start());
}
