// protobuf ⇄ plain. This file includes no LibTorch header (performance.md §7).
#include "worker/serve/evaluation_frames.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <utility>

#include "dex/internal/v1/frames.pb.h"
#include "proto/task_files.h"
#include "services/base/files.h"
#include "services/base/sha256.h"
#include "services/base/version.h"
#include "services/statistics/item_rows.h"
#include "worker/evaluate/kept_samples.h"
#include "worker/evaluate/shipped_text.h"
#include "worker/model/memory_failure.h"
#include "worker/serve/artefact_frames.h"
#include "worker/serve/evaluation_messages.h"
#include "worker/serve/evaluation_report.h"
#include "worker/serve/evaluation_run.h"
#include "worker/serve/stop_listener.h"

namespace dex::serve {
namespace {

namespace pb = dex::v1;
using internal::v1::EvaluatorStart;
using internal::v1::TrainerCommand;
using internal::v1::TrainerReport;
using Stop = TrainerCommand::Stop;

constexpr int64_t kStart_ms = 60'000;
constexpr int64_t kFrame_ms = 10'000;
constexpr int kRowsAnEvent = 64;
constexpr size_t kKeptSteps = 2;
constexpr const char* kStepManifest = "MANIFEST.json";
constexpr const char* kExports = "instructions-";  // begins what the only task that exports has
constexpr const char* kSamples = "samples-";       // and the task's number from 1, .jsonl
constexpr const char* kItems = "items-";           // likewise
// Of a task's items: whoever reads them takes 8 MiB (scheduler/server/published_file.h).
constexpr size_t kMostItemBytes = 7 << 20;

// Exit codes of jobs.md §6 that an evaluation has.
enum EvaluationExit : int {
  kDone = 0,
  kBadTask = 10,
  kBadFile = 11,
  kOutOfMemory = 13,
  kDiskFull = 14,
  kQuotaUsedUp = 15,
  kStopped = 16,
  kBrokenBase = 17,
  kTryAgain = 18,
};

struct EvaluationEnd {
  int exit = kDone;
  internal::v1::Outcome outcome = internal::v1::OUTCOME_SUCCESS;
  std::string code, message, param;
  std::optional<SavedReport> published;
};

pb::JobPhase phase_message(EvaluationPhase phase) {
  switch (phase) {
    case EvaluationPhase::kLoadingDataset:
      return pb::JOB_PHASE_LOADING_DATASET;
    case EvaluationPhase::kLoadingModel:
      return pb::JOB_PHASE_LOADING_MODEL;
    case EvaluationPhase::kEvaluating:
      return pb::JOB_PHASE_EVALUATING;
  }
  return pb::JOB_PHASE_UNSPECIFIED;
}

class FramedEvaluation final : public EvaluationSession {
 public:
  FramedEvaluation(const EvaluatorStart& start, EvaluationJob job, base::FrameChannel& channel,
                   const StopListener& listener, const base::Clock& clock)
      : start_(start),
        job_(std::move(job)),
        channel_(channel),
        listener_(listener),
        clock_(clock),
        began_ms_(clock.steady_ms()),
        samples_(job_.seed) {}

  // Everything from what an earlier attempt left to the published result.
  SavedReport run() {
    take_up();
    if (done() < job_.tasks.size()) check_files();
    run_evaluation_job(job_, done(), *this, clock_);
    send_progress(pb::JOB_PHASE_FINALIZING, done(), 1);
    std::vector<std::string> names;
    for (const auto& result : report_.results()) names.push_back(name_of(result.file()));
    SavedFiles files = head_pictures(report_);
    const SavedFiles tasks = task_files();
    files.insert(files.end(), tasks.begin(), tasks.end());
    return save_report(directory() / "final", "checksums.json", report_,
                       report_markdown(report_, names), files);
  }

  void progress(EvaluationPhase phase, size_t done, double ratio) override {
    send_progress(phase_message(phase), done, ratio);
  }

  void sample(const evaluate::Sample& sample) override { samples_.add(sample); }

  void finished(size_t task, const evaluate::Evaluation& evaluation) override {
    const auto files = proto::task_files(start_.spec().tasks(static_cast<int>(task)));
    auto& result = *report_.add_results();
    result = result_message(job_.tasks[task], files.at(0).file, evaluation);
    for (const auto& file : evaluation.files) {
      exports_.emplace_back(
          job_.tasks[task].task + "-" + std::to_string(task + 1) + "-" + file.name, file.content);
      result.add_files(exports_.back().first);
    }
    keep_items(task, evaluation);
    keep();
    tell(task);
  }

  [[nodiscard]] std::stop_token stop() const override { return listener_.token(); }

 private:
  [[nodiscard]] size_t done() const { return static_cast<size_t>(report_.results_size()); }
  [[nodiscard]] std::filesystem::path directory() const { return start_.attempt_dir(); }

  [[nodiscard]] std::string name_of(const std::string& file) const {
    for (const auto& known : start_.files()) {
      if (known.file() == file) return known.filename();
    }
    return file;
  }

  // Of an uploaded file; empty: the agent does not say.
  [[nodiscard]] std::string sha256_of(const std::string& file) const {
    for (const auto& known : start_.files()) {
      if (known.file() == file) return known.sha256();
    }
    return "";
  }

  // A step that can't be read costs time and nothing else: every number can be computed again.
  void take_up() {
    if (start_.checkpoint_dir().empty()) return;
    try {
      const std::string& hash = start_.checkpoint_manifest_sha256();
      exports_ = load_files(start_.checkpoint_dir(), kStepManifest, hash, kExports);
      sample_files_ = load_files(start_.checkpoint_dir(), kStepManifest, hash, kSamples);
      item_files_ = load_files(start_.checkpoint_dir(), kStepManifest, hash, kItems);
      report_ = load_report(start_.checkpoint_dir(), kStepManifest, hash);
    } catch (const std::runtime_error& error) {
      spdlog::warn("evaluation {} starts anew: {}", start_.job_id(), error.what());
    }
    if (done() > job_.tasks.size()) report_.Clear();
    if (done() == 0) {
      exports_.clear();
      sample_files_.clear();
      item_files_.clear();
    }
  }

  // Other bytes than were uploaded would give numbers that nobody asked for.
  void check_files() const {
    for (const auto& file : start_.files()) {
      if (file.sha256().empty()) continue;
      const auto hash = base::sha256_file(file.path());
      if (hash.ok() && *hash == file.sha256()) continue;
      throw EvaluationFailure(
          EvaluationFailure::Kind::kEngine,
          file.filename() + " (" + file.file() + ") " +
              (hash.ok() ? "is not what was uploaded any more" : "can't be read on the worker"),
          "");
    }
  }

  // Those of the task that has just become the last one of `report_`.
  void keep_samples() {
    const evaluate::KeptSamples samples = std::exchange(samples_, evaluate::KeptSamples(job_.seed));
    if (std::string lines = samples.lines(); !lines.empty())
      sample_files_.emplace_back(kSamples + std::to_string(done()) + ".jsonl", std::move(lines));
  }

  // With these another evaluation can be compared with this one, item by item, and a job's result
  // with another adapter than its base.
  void keep_items(size_t task, const evaluate::Evaluation& evaluation) {
    if (evaluation.items.empty()) return;  // it measures nothing
    statistics::TaskItems items{.task = job_.tasks[task].task, .rows = evaluation.items};
    for (const auto& file : proto::task_files(start_.spec().tasks(static_cast<int>(task)))) {
      if (!file.file.empty()) items.files.push_back(sha256_of(file.file));
    }
    if (items.files.empty()) items.files.push_back(evaluate::shipped_text_sha256());
    item_files_.emplace_back(kItems + std::to_string(task + 1) + ".jsonl",
                             statistics::items_text(items, kMostItemBytes));
  }

  // What the tasks that are done have beside their results.
  [[nodiscard]] SavedFiles task_files() const {
    SavedFiles files = exports_;
    files.insert(files.end(), sample_files_.begin(), sample_files_.end());
    files.insert(files.end(), item_files_.begin(), item_files_.end());
    return files;
  }

  void keep() {
    keep_samples();
    const SavedFiles files = task_files();
    const int64_t begin_ms = clock_.steady_ms();
    const auto saved = save_report(directory() / ("step-" + std::to_string(done())), kStepManifest,
                                   report_, "", files);
    TrainerReport report;
    auto& out = *report.mutable_checkpoint();
    out.set_uri(saved.path.string());
    out.set_manifest_sha256(saved.manifest_sha256);
    out.set_step(static_cast<uint32_t>(done()));
    out.set_bytes(saved.bytes);
    out.set_seconds(clock_.seconds_since(begin_ms));
    send(report);
    forget_older_steps();
  }

  // Each step holds what those before it hold. The last one but one stays too: the scheduler may
  // not have heard of the last one yet.
  void forget_older_steps() const {
    if (done() <= kKeptSteps) return;
    const auto oldest = directory() / ("step-" + std::to_string(done() - kKeptSteps));
    if (const auto removed = base::remove_tree(oldest); !removed.ok())
      spdlog::warn("evaluation {}: {}", start_.job_id(), removed.message());
  }

  void tell(size_t task) {
    const auto& result = report_.results(static_cast<int>(task));
    TrainerReport report;
    auto& event = *report.mutable_event();
    event.set_type("job_evaluation");
    event.set_level(pb::FineTuningEvent::LEVEL_INFO);
    event.set_message("Task " + std::to_string(task + 1) + " of " +
                      std::to_string(job_.tasks.size()) + ", " + result.task() + ", is done.");
    event.set_attempt(start_.attempt());
    stamp(*event.mutable_create_time());
    auto& data = *event.mutable_job_evaluation();
    data.set_index(static_cast<uint32_t>(task));
    data.set_task(result.task());
    for (const auto& row : result.rows()) {
      if (row.dims().empty() && data.rows_size() < kRowsAnEvent) *data.add_rows() = row;
    }
    send(report);
  }

  void send_progress(pb::JobPhase phase, size_t done, double ratio) {
    TrainerReport report;
    auto& out = *report.mutable_progress();
    out.set_phase(phase);
    auto& figures = *out.mutable_progress();
    figures.set_step(static_cast<uint32_t>(done));
    figures.set_total_steps(static_cast<uint32_t>(job_.tasks.size()));
    figures.set_progress_percentage(100 * ratio);
    const double passed_s = clock_.seconds_since(began_ms_);
    if (first_ratio_ < 0) first_ratio_ = ratio;  // an earlier attempt's share took no time here
    if (ratio > first_ratio_)
      figures.set_estimated_remaining_seconds(passed_s * (1 - ratio) / (ratio - first_ratio_));
    stamp(*figures.mutable_last_updated_time());
    channel_.offer(report.SerializeAsString());
  }

  void stamp(google::protobuf::Timestamp& out) const {
    const int64_t now_ms = clock_.now_ms();
    out.set_seconds(now_ms / 1000);
    out.set_nanos(static_cast<int32_t>(now_ms % 1000 * 1'000'000));
  }

  void send(const TrainerReport& report) {
    if (!channel_.write(report.SerializeAsString(), kFrame_ms).ok()) throw evaluate::Stopped();
  }

  const EvaluatorStart& start_;
  const EvaluationJob job_;
  base::FrameChannel& channel_;
  const StopListener& listener_;
  const base::Clock& clock_;
  const int64_t began_ms_;
  double first_ratio_ = -1;
  pb::EvaluationReport report_;
  evaluate::KeptSamples samples_;  // of the task that runs
  SavedFiles sample_files_;        // of those that are done
  SavedFiles item_files_;          // likewise
  SavedFiles exports_;             // likewise what they export
};

EvaluationEnd failed(int exit, internal::v1::Outcome outcome, std::string code,
                     const std::string& message, std::string param = "") {
  return {exit, outcome, std::move(code), message, std::move(param), std::nullopt};
}

EvaluationEnd end_of(const EvaluationFailure& failure) {
  using Kind = EvaluationFailure::Kind;
  const std::string what = failure.what();
  switch (failure.kind()) {
    case Kind::kFile:
      return failed(kBadFile, internal::v1::OUTCOME_FAIL_FINAL, "invalid_evaluation_file", what,
                    failure.param());
    case Kind::kTask:
      return failed(kBadTask, internal::v1::OUTCOME_FAIL_FINAL, "invalid_hyperparameter", what,
                    failure.param());
    case Kind::kAdapter:
      return failed(kBadTask, internal::v1::OUTCOME_FAIL_FINAL, "adapter_mismatch", what,
                    failure.param());
    case Kind::kBase:
      return failed(kBrokenBase, internal::v1::OUTCOME_RELEASE, "internal", what);
    case Kind::kMemory:
      return failed(kOutOfMemory, internal::v1::OUTCOME_OOM, "out_of_memory", what,
                    failure.param());
    case Kind::kEngine:
      return failed(kTryAgain, internal::v1::OUTCOME_FAIL_RETRY, "internal", what);
  }
  return failed(kTryAgain, internal::v1::OUTCOME_FAIL_RETRY, "internal", what);
}

EvaluationEnd end_of(const DiskFailure& failure) {
  using Kind = DiskFailure::Kind;
  const std::string what = failure.what();
  switch (failure.kind()) {
    case Kind::kFull:
      return failed(kDiskFull, internal::v1::OUTCOME_DISK_FULL, "disk_full", what);
    case Kind::kQuota:
      return failed(kQuotaUsedUp, internal::v1::OUTCOME_FAIL_FINAL, "quota_exceeded",
                    "the results can't be kept, since the storage quota is used up: " + what);
    case Kind::kOther:
      break;
  }
  return failed(kTryAgain, internal::v1::OUTCOME_FAIL_RETRY, "internal", what);
}

EvaluationEnd stopped(Stop::Reason reason) {
  const auto outcome = reason == Stop::REASON_CANCEL  ? internal::v1::OUTCOME_CANCELLED
                       : reason == Stop::REASON_PAUSE ? internal::v1::OUTCOME_PAUSED
                                                      : internal::v1::OUTCOME_RELEASE;
  return failed(kStopped, outcome, "", "stopped on request");
}

EvaluationEnd run_start(const EvaluatorStart& start, base::FrameChannel& channel,
                        const base::StopSignals& signals, const base::Clock& clock) {
  const StopListener listener(channel, signals);
  try {
    TrainerReport ready;
    ready.mutable_ready()->set_version(std::string(base::version()));
    ready.mutable_ready()->set_device("cpu");
    if (!channel.write(ready.SerializeAsString(), kFrame_ms).ok()) throw evaluate::Stopped();
    EvaluationEnd end;
    end.published = FramedEvaluation(start, evaluation_job(start), channel, listener, clock).run();
    return end;
  } catch (const evaluate::Stopped&) {
    return stopped(listener.reason());
  } catch (const EvaluationFailure& failure) {
    return end_of(failure);
  } catch (const DiskFailure& failure) {
    return end_of(failure);
  } catch (const std::exception& error) {
    if (model::is_out_of_memory(error)) {
      return failed(kOutOfMemory, internal::v1::OUTCOME_OOM, "out_of_memory",
                    "there is not enough memory for the models and this evaluation's lengths");
    }
    return failed(kTryAgain, internal::v1::OUTCOME_FAIL_RETRY, "internal", error.what());
  }
}

std::string last_frame(const EvaluationEnd& end) {
  TrainerReport report;
  auto& out = *report.mutable_result();
  out.set_outcome(end.outcome);
  out.set_code(end.code);
  out.set_message(end.message);
  out.set_param(end.param);
  if (end.published) {
    out.mutable_result()->set_uri(end.published->path.string());
    out.mutable_result()->set_manifest_sha256(end.published->manifest_sha256);
    out.mutable_result()->set_bytes(end.published->bytes);
  }
  return report.SerializeAsString();
}

}  // namespace

int run_evaluation_frames(base::FrameChannel& channel, const base::StopSignals& signals,
                          const base::Clock& clock) {
  const auto frame = channel.read(kStart_ms, signals.token());
  if (!frame.ok()) {
    spdlog::error("no start frame: {}", frame.status().message());
    return kStopped;
  }
  TrainerCommand command;
  EvaluationEnd end;
  const bool read = command.ParseFromString(*frame);
  if (read && command.has_artefact())
    return run_artefact_frames(command.artefact(), channel, signals);
  if (!read || !command.has_evaluate()) {
    end = failed(kTryAgain, internal::v1::OUTCOME_FAIL_RETRY, "internal",
                 "the first frame must be EvaluatorStart or ArtefactStart");
  } else {
    end = run_start(command.evaluate(), channel, signals, clock);
  }
  if (end.exit != kDone) spdlog::info("evaluation ends: {} {}", end.code, end.message);
  // An agent that is gone reads the exit code.
  (void)channel.write(last_frame(end), kFrame_ms).ok();
  return end.exit;
}

}  // namespace dex::serve
