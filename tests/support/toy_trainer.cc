// A trainer whose model is a hash chain (toy_chain.h). Everything around it is as in dex-trainer:
// frames, checkpoints and final/ written whole or not at all, a resume that checks every byte. How
// it behaves stands in the job's suffix, words between dots:
//   ms-<n>           a step takes n ms (default 10)
//   points-<n>       n events after each step
//   block-<step>     this step takes blockms-<n> ms, and nothing is read meanwhile
//   abort-<step>     SIGABRT after this step
//   killagent-<step> SIGKILL to its agent after this step
//   stall-<step>     nothing more after this step, whatever the agent says
//   deaf             hears neither stop frames nor SIGTERM
//   enospc-<step>    the disk is full when the checkpoint after this step is written
//   upto-<attempt>   all of the above only in attempts up to this one
//   gate-<step>      after this step waits, listening, for the file go-<attempt> or go in the job's
//                    directory
// Checkpoints come every spec.checkpoints.every_steps steps. Exit codes as in jobs.md §6.

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/atomic_directory.h"
#include "services/base/clock.h"
#include "services/base/files.h"
#include "services/base/frame_channel.h"
#include "services/base/sha256.h"
#include "services/base/signals.h"
#include "services/base/subprocess.h"
#include "tests/support/failing_file_layer.h"
#include "tests/support/toy_chain.h"

namespace {

namespace fs = std::filesystem;
namespace iv1 = dex::internal::v1;
using dex::base::AtomicDirectory;
using dex::base::FrameChannel;
using nlohmann::json;
using Stop = iv1::TrainerCommand::Stop;

// A frozen agent reads nothing for a while; that is no reason to end.
constexpr int64_t kPatience_ms = 120'000;
constexpr int64_t kLargestFile_bytes = 1 << 20;
constexpr size_t kBallast_bytes = 32 << 10;  // a torn file would show
constexpr int kGone = 1, kDiskFull = 14, kStopped = 16, kBrokenInput = 17, kRetryable = 18;

// "ms-20.abort-5.deaf" → {ms: 20, abort: 5, deaf: 1}
std::map<std::string, int64_t> words_of_suffix(const std::string& suffix) {
  std::map<std::string, int64_t> words;
  for (size_t at = 0; at < suffix.size();) {
    const size_t end = std::min(suffix.find('.', at), suffix.size());
    const std::string word = suffix.substr(at, end - at);
    const size_t dash = word.find('-');
    words[word.substr(0, dash)] = dash == std::string::npos ? 1 : std::stoll(word.substr(dash + 1));
    at = end + 1;
  }
  return words;
}

class Toy {
 public:
  Toy(FrameChannel& channel, const dex::base::StopSignals& signals, iv1::TrainerStart start)
      : channel_(channel),
        signals_(signals),
        start_(std::move(start)),
        words_(words_of_suffix(start_.spec().suffix())),
        attempt_dir_(start_.attempt_dir()),
        total_(start_.spec().hyperparameters().max_steps()),
        every_(start_.spec().checkpoints().every_steps()),
        state_(dex::support::toy_state(start_.job_id(), 0)) {}

  int run() {
    ready();
    if (!start_.checkpoint_dir().empty() && !resume()) return kBrokenInput;
    training_start();
    progress();
    while (step_ < total_) {
      if (const auto why = wait_a_step()) return leave(*why);
      state_ = dex::support::toy_step(state_, ++step_);
      progress();
      points();
      if (every_ > 0 && step_ % every_ == 0) {
        if (const int code = save()) return code;
      }
      misbehave();
      if (const auto why = wait_at_gate()) return leave(*why);
    }
    return publish();
  }

 private:
  // A word that says at which step; −1: never, or not in this attempt.
  [[nodiscard]] int64_t trouble(const std::string& word) const {
    const auto found = words_.find(word);
    const auto upto = words_.find("upto");
    const bool over = upto != words_.end() && start_.attempt() > upto->second;
    return found == words_.end() || over ? -1 : found->second;
  }
  [[nodiscard]] int64_t value(const std::string& word, int64_t other) const {
    const auto found = words_.find(word);
    return found == words_.end() ? other : found->second;
  }

  void send(const iv1::TrainerReport& report) {
    if (!channel_.write(report.SerializeAsString(), kPatience_ms).ok()) std::exit(kGone);
  }
  void ready() {
    iv1::TrainerReport report;
    report.mutable_ready()->set_version("toy");
    report.mutable_ready()->set_device("none");
    send(report);
  }
  void training_start() {
    iv1::TrainerReport report;
    auto& event = *report.mutable_event();
    event.set_type("training_start");
    event.set_message("toy");
    event.mutable_training_start()->set_total_steps(static_cast<uint32_t>(total_));
    event.mutable_training_start()->set_resumed_from_step(static_cast<uint32_t>(step_));
    send(report);
  }
  void progress() {
    iv1::TrainerReport report;
    auto& progress = *report.mutable_progress();
    progress.set_phase(dex::v1::JOB_PHASE_TRAINING);
    progress.set_step_seconds(0.001);
    progress.mutable_progress()->set_step(static_cast<uint32_t>(step_));
    progress.mutable_progress()->set_total_steps(static_cast<uint32_t>(total_));
    channel_.offer(report.SerializeAsString());
  }
  void points() {
    for (int64_t i = 0; i < value("points", 0); ++i) {
      iv1::TrainerReport report;
      report.mutable_event()->set_type("metrics");
      report.mutable_event()->mutable_metrics()->set_step(static_cast<uint32_t>(step_));
      send(report);
    }
  }
  int result(iv1::Outcome outcome, const std::string& code, int exit) {
    iv1::TrainerReport report;
    report.mutable_result()->set_outcome(outcome);
    report.mutable_result()->set_code(code);
    report.mutable_result()->set_message(code);
    send(report);
    return exit;
  }

  // Listens for `ms`; why the agent, or SIGTERM, wants this process to stop.
  std::optional<Stop::Reason> listen(int64_t ms) {
    const bool deaf = trouble("deaf") >= 0;
    const int64_t end = clock_.steady_ms() + ms;
    while (true) {
      const int64_t left = std::max<int64_t>(0, end - clock_.steady_ms());
      const auto frame = deaf ? channel_.read(left) : channel_.read(left, signals_.token());
      if (!deaf && signals_.token().stop_requested()) return Stop::REASON_DRAIN;
      if (!frame.ok()) {
        if (frame.status().code() == dex::base::Code::kDeadlineExceeded) return std::nullopt;
        std::exit(kGone);  // the agent has closed the channel
      }
      iv1::TrainerCommand command;
      if (!command.ParseFromString(*frame)) std::exit(kGone);
      if (command.has_stop() && !deaf) return command.stop().reason();
    }
  }

  std::optional<Stop::Reason> wait_a_step() {
    if (step_ + 1 == trouble("block")) {
      ::poll(nullptr, 0, static_cast<int>(value("blockms", 1'000)));
      return std::nullopt;
    }
    return listen(value("ms", 10));
  }

  void misbehave() const {
    if (step_ == trouble("abort")) std::abort();
    if (step_ == trouble("killagent")) {
      ::kill(::getppid(), SIGKILL);
      while (true) ::pause();  // our own end follows the agent's
    }
    if (step_ == trouble("stall")) {
      while (true) ::pause();
    }
  }

  std::optional<Stop::Reason> wait_at_gate() {
    if (step_ != value("gate", -1)) return std::nullopt;
    const fs::path job = attempt_dir_.parent_path();
    const fs::path own = job / ("go-" + std::to_string(start_.attempt()));
    while (!fs::exists(own) && !fs::exists(job / "go")) {
      if (const auto why = listen(20)) return why;
      progress();
    }
    return std::nullopt;
  }

  [[nodiscard]] std::string ballast() const {
    std::string bytes;
    while (bytes.size() < kBallast_bytes) bytes += state_;
    return bytes;
  }

  dex::base::Status write_checkpoint(AtomicDirectory& directory) const {
    const json state = {{"step", step_}, {"state", state_}};
    DEX_RETURN_IF_ERROR(directory.write("state.json", state.dump()));
    DEX_RETURN_IF_ERROR(directory.write("ballast.bin", ballast()));
    json manifest = {{"step", step_}, {"attempt", start_.attempt()}, {"files", json::array()}};
    for (const auto& entry : directory.entries()) {
      manifest["files"].push_back(
          {{"name", entry.name}, {"size", entry.size_bytes}, {"sha256", entry.sha256}});
    }
    return directory.commit("MANIFEST.json", manifest.dump());
  }

  // A checkpoint of this moment, once; 0, or the code to end with.
  int save() {
    if (saved_ == step_) return 0;
    const fs::path path = attempt_dir_ / ("step-" + std::to_string(step_));
    const bool full = step_ == trouble("enospc");
    // The third call of the writer is the first that needs room: mkdir, open, write.
    dex::support::FailingFileLayer no_room(3, ENOSPC, /*stops=*/false);
    auto directory = AtomicDirectory::create(path, full ? no_room : dex::base::system_files());
    const auto status = directory.ok() ? write_checkpoint(*directory) : directory.status();
    iv1::TrainerReport report;
    auto& done = *report.mutable_checkpoint();
    done.set_step(static_cast<uint32_t>(step_));
    if (!status.ok()) {
      done.set_error(status.message());
      send(report);
      const bool disk = status.reason() == "STORAGE_FULL";
      return disk ? result(iv1::OUTCOME_DISK_FULL, "disk_full", kDiskFull) : kRetryable;
    }
    done.set_uri(path.string());
    done.set_manifest_sha256(directory->entries().back().sha256);
    done.set_seconds(0.001);
    for (const auto& entry : directory->entries()) done.set_bytes(done.bytes() + entry.size_bytes);
    send(report);
    saved_ = step_;
    return 0;
  }

  int leave(Stop::Reason why) {
    if (why == Stop::REASON_CANCEL) return result(iv1::OUTCOME_CANCELLED, "", kStopped);
    if (step_ > 0) {
      if (const int code = save()) return code;
    }
    return result(why == Stop::REASON_PAUSE ? iv1::OUTCOME_PAUSED : iv1::OUTCOME_RELEASE, "",
                  kStopped);
  }

  // False when the checkpoint is not what the scheduler's pointer says, byte for byte, or not what
  // an undisturbed run would have had at its step.
  bool resume() {
    const fs::path folder = start_.checkpoint_dir();
    const auto text = dex::base::read_file(folder / "MANIFEST.json", kLargestFile_bytes);
    if (!text.ok()) return false;
    if (dex::base::sha256_hex(*text) != start_.checkpoint_manifest_sha256()) return false;
    const json manifest = json::parse(*text, nullptr, false);
    if (manifest.is_discarded()) return false;
    for (const json& file : manifest.at("files")) {
      const auto sha256 = dex::base::sha256_file(folder / file.at("name").get<std::string>());
      if (!sha256.ok() || *sha256 != file.at("sha256").get<std::string>()) return false;
    }
    const auto state = dex::base::read_file(folder / "state.json", kLargestFile_bytes);
    if (!state.ok()) return false;
    const json saved = json::parse(*state, nullptr, false);
    if (saved.is_discarded()) return false;
    step_ = saved.at("step").get<int64_t>();
    state_ = saved.at("state").get<std::string>();
    return state_ == dex::support::toy_state(start_.job_id(), step_);
  }

  int publish() {
    const fs::path path = attempt_dir_ / "final";
    auto directory = AtomicDirectory::create(path);
    if (!directory.ok()) return kRetryable;
    const json config = {{"job", start_.job_id()}, {"step", step_}, {"state", state_}};
    json sums = json::object();
    const auto write = [&]() -> dex::base::Status {
      DEX_RETURN_IF_ERROR(directory->write("adapter_model.safetensors", ballast()));
      DEX_RETURN_IF_ERROR(directory->write("adapter_config.json", config.dump()));
      for (const auto& entry : directory->entries()) sums[entry.name] = entry.sha256;
      return directory->commit("checksums.json", sums.dump());
    };
    if (!write().ok()) return kRetryable;
    iv1::TrainerReport report;
    auto& out = *report.mutable_result();
    out.set_outcome(iv1::OUTCOME_SUCCESS);
    out.mutable_result()->set_uri(path.string());
    out.mutable_result()->set_manifest_sha256(directory->entries().back().sha256);
    out.mutable_result()->set_bytes(static_cast<int64_t>(kBallast_bytes));
    out.mutable_result()->mutable_adapter()->set_base_model(start_.base_model_name());
    out.mutable_result()->mutable_adapter()->set_base_weights_sha256(start_.base_weights_sha256());
    send(report);
    return 0;
  }

  FrameChannel& channel_;
  const dex::base::StopSignals& signals_;
  const iv1::TrainerStart start_;
  const std::map<std::string, int64_t> words_;
  const fs::path attempt_dir_;
  const int64_t total_, every_;
  const dex::base::SystemClock clock_{};

  int64_t step_ = 0;
  std::string state_;
  int64_t saved_ = -1;
};

}  // namespace

int main() {
  const dex::base::StopSignals signals;
  if (!dex::base::die_with_parent()) return kGone;
  FrameChannel channel{dex::base::Fd(3)};
  const auto frame = channel.read(kPatience_ms);
  iv1::TrainerCommand command;
  if (!frame.ok() || !command.ParseFromString(*frame) || !command.has_start()) return kGone;
  return Toy(channel, signals, command.start()).run();
}
